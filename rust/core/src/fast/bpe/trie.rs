//! All tokens in one tree of their atoms, and the longest of them that a text begins with.
//!
//! The tree lies in one array: the child of a node by atom `a` is at `base + a`, if the node there
//! names it as its parent. From every node the way along the run symbol is listed besides, so a run
//! is walked in one step, however long it is.

use super::alphabet::{Atom, NONE};
use crate::fast::runs::Marks;

/// Slots beyond which an array is not worth its memory: `8 * nodes +` this.
const SPARE: usize = 1 << 16;
/// Free places tried for a node before its children go to the end.
const PATIENCE: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Node {
    base: u32,
    parent: u32,
    /// The longest token that ends here or above.
    token: u32,
    /// Where in `chains` the way along the run symbol begins, and how far it goes.
    chain: u32,
    steps: u32,
}

const FREE: Node = Node {
    base: 0,
    parent: NONE,
    token: NONE,
    chain: 0,
    steps: 0,
};

#[derive(Debug, Clone)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    chains: Vec<u32>,
    /// Atoms of the run symbol.
    unit: Vec<Atom>,
}

const ROOT: usize = 0;

impl Trie {
    /// The tree of `(atoms, token)`, none of them empty, tokens from 0 on; nothing where it would waste
    /// memory. With it, for each token, the longest of the shorter ones that it begins with.
    pub(super) fn new<'a>(
        tokens: impl Iterator<Item = (&'a [Atom], u32)>,
        unit: &[Atom],
    ) -> Option<(Self, Vec<u32>)> {
        let grown = Grown::new(tokens);
        let (mut nodes, slots) = grown.pack()?;
        let mut shorter = vec![NONE; grown.tokens.iter().filter(|&&token| token != NONE).count()];
        for (&own, &slot) in grown.tokens.iter().zip(&slots) {
            let above = nodes[slot as usize].parent as usize;
            let above = nodes[above].token; // parents come first; that of the root is the root
            nodes[slot as usize].token = if own == NONE { above } else { own };
            if let Some(shorter) = shorter.get_mut(own as usize) {
                *shorter = above;
            }
        }
        let mut chains = Vec::new();
        if !unit.is_empty() {
            let follow = |node: usize| {
                let atoms = unit.iter();
                atoms
                    .copied()
                    .try_fold(node, |node, atom| grown.child(node, atom))
            };
            let next: Vec<_> = (0..slots.len()).map(follow).collect();
            let mut inner = vec![false; slots.len()];
            next.iter().flatten().for_each(|&node| inner[node] = true);
            for head in (0..slots.len()).filter(|&node| !inner[node]) {
                let way: Vec<usize> =
                    std::iter::successors(Some(head), |&node| next[node]).collect();
                for (done, &node) in way.iter().enumerate() {
                    let node = &mut nodes[slots[node] as usize];
                    node.chain = (chains.len() + done) as u32;
                    node.steps = (way.len() - 1 - done) as u32;
                }
                chains.extend(way[1..].iter().map(|&node| slots[node]));
            }
        }
        let unit = unit.to_vec();
        Some((
            Self {
                nodes,
                chains,
                unit,
            },
            shorter,
        ))
    }

    /// The longest token at the start of `text[from..end]`, which is not empty; [`NONE`] where none
    /// begins with its first atom.
    ///
    /// `marks` are the places of the text that are not part of a run.
    /// Where runs are of one atom, `run` of them may be known to begin at `from`.
    #[inline]
    pub(super) fn longest(
        &self,
        text: &[Atom],
        marks: &Marks,
        from: usize,
        end: usize,
        run: usize,
    ) -> u32 {
        match *self.unit {
            [atom] => self.walk_single(atom, text, marks, (from, end), run),
            _ => self.walk(text, marks, from, end),
        }
    }

    /// Where runs are of one atom: the walk ends within a run or steps over all of it.
    #[inline]
    fn walk_single(
        &self,
        atom: Atom,
        text: &[Atom],
        marks: &Marks,
        (from, end): (usize, usize),
        mut run: usize,
    ) -> u32 {
        let (mut node, mut at) = (ROOT, from);
        loop {
            if run > 0 {
                let (steps, whole) = self.along(&mut node, run);
                if !whole || steps == 0 {
                    break;
                }
                at += run;
            }
            if at == end {
                break;
            }
            run = if text[at] == atom {
                marks.next(at, end) - at
            } else {
                0
            };
            if run == 0 {
                match self.child(node, text[at]) {
                    Some(child) => node = child,
                    None => break,
                }
                at += 1;
            }
        }
        self.nodes[node].token
    }

    /// Where runs are of several atoms, between two of which a token can begin and end.
    fn walk(&self, text: &[Atom], marks: &Marks, from: usize, end: usize) -> u32 {
        let (mut node, mut at) = (ROOT, from);
        let unit = self.unit.len().max(1);
        while at < end {
            let left = marks.next(at, end) - at;
            if left.is_multiple_of(unit) {
                let (steps, _) = self.along(&mut node, left / unit);
                at += steps * unit;
                if steps > 0 {
                    continue;
                }
            }
            match self.child(node, text[at]) {
                Some(child) => node = child,
                None => break,
            }
            at += 1;
        }
        self.nodes[node].token
    }

    /// Goes along a run of `count` symbols, as far as the tree goes: how far, and whether all the way.
    #[inline]
    fn along(&self, node: &mut usize, count: usize) -> (usize, bool) {
        let Node { chain, steps, .. } = self.nodes[*node];
        let taken = count.min(steps as usize);
        if taken > 0 {
            *node = self.chains[chain as usize + taken - 1] as usize;
        }
        (taken, taken == count)
    }

    #[inline]
    fn child(&self, node: usize, atom: Atom) -> Option<usize> {
        let child = self.nodes[node].base as usize + usize::from(atom);
        (self.nodes.get(child)?.parent == node as u32).then_some(child)
    }
}

/// The tree while it grows: nodes with their children by atom, parents first.
struct Grown {
    children: Vec<Vec<(Atom, u32)>>,
    tokens: Vec<u32>,
}

impl Grown {
    fn new<'a>(tokens: impl Iterator<Item = (&'a [Atom], u32)>) -> Self {
        let mut grown = Self {
            children: vec![Vec::new()],
            tokens: vec![NONE],
        };
        for (atoms, token) in tokens {
            let node = atoms.iter().fold(ROOT, |node, &atom| {
                let children = &grown.children[node];
                match children.binary_search_by_key(&atom, |&(atom, _)| atom) {
                    Ok(place) => children[place].1 as usize,
                    Err(place) => {
                        let child = grown.tokens.len();
                        grown.children[node].insert(place, (atom, child as u32));
                        grown.children.push(Vec::new());
                        grown.tokens.push(NONE);
                        child
                    }
                }
            });
            grown.tokens[node] = token;
        }
        grown
    }

    fn child(&self, node: usize, atom: Atom) -> Option<usize> {
        let children = &self.children[node];
        let place = children
            .binary_search_by_key(&atom, |&(atom, _)| atom)
            .ok()?;
        Some(children[place].1 as usize)
    }

    /// Lays the tree into one array; with it the place of each node.
    fn pack(&self) -> Option<(Vec<Node>, Vec<u32>)> {
        let most = 8 * self.tokens.len() + SPARE;
        let mut nodes = vec![FREE];
        nodes[ROOT].parent = ROOT as u32; // a child of nobody: its base is above 0
        let mut free = Free { after: vec![1] };
        let mut slots = vec![ROOT as u32; self.tokens.len()];
        let (mut queue, mut next) = (vec![ROOT], 0);
        while let Some(&node) = queue.get(next) {
            next += 1;
            let children = &self.children[node];
            let (Some(&(first, _)), Some(&(last, _))) = (children.first(), children.last()) else {
                continue;
            };
            let [first, last] = [first, last].map(usize::from);
            let base = free.place(first, &children.iter().map(|&(atom, _)| atom.into()));
            let end = base + last + 1;
            if end > most {
                return None;
            }
            if end > nodes.len() {
                nodes.resize(end, FREE);
            }
            let parent = slots[node];
            nodes[parent as usize].base = base as u32;
            for &(atom, child) in children {
                let slot = base + usize::from(atom);
                free.take(slot);
                nodes[slot].parent = parent;
                slots[child as usize] = slot as u32;
                queue.push(child as usize);
            }
        }
        Some((nodes, slots))
    }
}

/// Which slots are free: for each, itself or one between it and the next free one. Beyond them all is
/// free.
struct Free {
    after: Vec<usize>,
}

impl Free {
    /// The first free slot from `slot` on.
    fn from(&mut self, mut slot: usize) -> usize {
        while let Some(&after) = self.after.get(slot).filter(|&&after| after != slot) {
            let further = self.after.get(after).copied().unwrap_or(after);
            self.after[slot] = further; // so the next search takes half the steps
            slot = further;
        }
        slot
    }

    fn take(&mut self, slot: usize) {
        let known = self.after.len();
        self.after.extend(known..=slot);
        self.after[slot] = slot + 1;
    }

    /// A base, above 0, from which the slots of all `atoms` are free; the lowest is `first`.
    fn place(&mut self, first: usize, atoms: &(impl Iterator<Item = usize> + Clone)) -> usize {
        let mut slot = self.from(first + 1);
        for _ in 0..PATIENCE {
            let base = slot - first;
            if atoms
                .clone()
                .all(|atom| self.from(base + atom) == base + atom)
            {
                return base;
            }
            slot = self.from(slot + 1);
        }
        self.after.len().max(first + 1) - first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(tokens: &[&str], unit: &str, text: &str) -> String {
        let atoms = |text: &str| -> Vec<u16> { text.encode_utf16().collect() };
        let all: Vec<_> = tokens.iter().map(|token| atoms(token)).collect();
        let listed = all.iter().map(Vec::as_slice).zip(0..);
        let (trie, _) = Trie::new(listed, &atoms(unit)).unwrap();
        let mut marks = Marks::default();
        let codes = atoms(text);
        marks.clear(codes.len());
        let (unit, mut at) = (atoms(unit), 0);
        while at < codes.len() {
            let run = !unit.is_empty() && codes[at..].starts_with(&unit);
            if !run {
                marks.set(at);
            }
            at += if run { unit.len() } else { 1 };
        }
        match trie.longest(&codes, &marks, 0, codes.len(), 0) {
            NONE => String::new(),
            token => tokens[token as usize].to_owned(),
        }
    }

    #[test]
    fn the_longest_token_is_found_along_and_across_runs() {
        let tokens = [
            "0", "00", "00000", "x", "x0", "x000", "x0y", "y", "yx0000", "z0", "0z",
        ];
        for (text, want) in [
            ("0", "0"),
            ("0000", "00"),
            ("0000000", "00000"),
            ("00x", "00"),
            ("x00y", "x0"),
            ("x000y", "x000"),
            ("x0yx", "x0y"),
            ("yx000", "y"),
            ("yx0000", "yx0000"),
            ("z", ""),
            ("z00", "z0"),
            ("w", ""),
            ("0zz", "0z"),
        ] {
            for unit in ["0", "x", "00", "x0", ""] {
                assert_eq!(longest(&tokens, unit, text), want, "{text} by {unit:?}");
            }
        }
    }

    #[test]
    fn nothing_but_the_tokens_is_found() {
        let tokens = [
            "a",
            "ab",
            "b",
            "bc",
            "cab",
            "\u{d7ff}",
            "\u{d7ff}a",
            "q\u{300}",
        ];
        for token in tokens {
            assert_eq!(longest(&tokens, "a", token), token);
        }
        for (text, want) in [
            ("c", ""),
            ("ca", ""),
            ("bb", "b"),
            ("q", ""),
            ("\u{300}", ""),
        ] {
            assert_eq!(longest(&tokens, "a", text), want);
        }
    }
}

//! A value for each node, at its index: ids are dense, so that this needs half the memory of a tree.

use gaunt_cluster::NodeId;

/// The values of nodes.
#[derive(Debug)]
pub(super) struct NodeTable<T> {
    values: Vec<Option<T>>,
}

impl<T> Default for NodeTable<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T> NodeTable<T> {
    /// Returns the value of a node.
    pub(super) fn get(&self, id: NodeId) -> Option<&T> {
        self.values.get(id.index())?.as_ref()
    }

    /// Returns the value of a node, to change it.
    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut T> {
        self.values.get_mut(id.index())?.as_mut()
    }

    /// Replaces the value of a node.
    pub(super) fn insert(&mut self, id: NodeId, value: T) {
        self.ensure_index(id.index());
        self.values[id.index()] = Some(value);
    }

    /// Returns the value of a node, which is the default one if it had none.
    pub(super) fn get_or_default(&mut self, id: NodeId) -> &mut T
    where
        T: Default,
    {
        self.ensure_index(id.index());
        self.values[id.index()].get_or_insert_default()
    }

    /// Removes the values of all other nodes.
    pub(super) fn retain(&mut self, is_kept: impl Fn(NodeId) -> bool) {
        for (index, value) in self.values.iter_mut().enumerate() {
            if value.is_some() && !is_kept(NodeId::at_index(index)) {
                *value = None;
            }
        }
    }

    /// Returns all values, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut T)> {
        let values = self.values.iter_mut().enumerate();
        values.filter_map(|(index, value)| Some((NodeId::at_index(index), value.as_mut()?)))
    }

    fn ensure_index(&mut self, index: usize) {
        let length = self.values.len().max(index + 1);
        self.values.resize_with(length, || None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_keeps_the_values_of_the_nodes_that_are_left() {
        let mut table = NodeTable::default();
        let (first, last) = (NodeId::at_index(0), NodeId::at_index(5));
        table.insert(last, 7);
        *table.get_or_default(first) += 1;
        let all: Vec<(NodeId, i32)> = table.iter_mut().map(|(id, value)| (id, *value)).collect();
        assert_eq!(all, [(first, 1), (last, 7)]);
        table.retain(|id| id == last);
        assert_eq!((table.get(first), table.get(last)), (None, Some(&7)));
        assert_eq!(table.get(NodeId::at_index(9)), None);
    }
}

//! A copy-on-write list: pages of one target share it, and only a change copies it.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// A list with shared ownership. A change copies it if it is shared.
#[derive(Clone, Debug)]
pub struct CowList<T>(Arc<Vec<T>>);

impl<T> CowList<T> {
    /// Whether both are one list in memory and therefore equal without a comparison.
    #[inline]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether another holder shares the list.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl<T> Default for CowList<T> {
    fn default() -> Self {
        Self(Arc::new(Vec::new()))
    }
}

impl<T: PartialEq> PartialEq for CowList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || *self.0 == *other.0
    }
}

impl<T: Eq> Eq for CowList<T> {}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for CowList<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        *self.0 == *other
    }
}

impl<T> Deref for CowList<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for CowList<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<Vec<T>> for CowList<T> {
    fn from(list: Vec<T>) -> Self {
        Self(Arc::new(list))
    }
}

impl<T> FromIterator<T> for CowList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(Arc::new(items.into_iter().collect()))
    }
}

impl<'a, T: Clone> IntoIterator for &'a mut CowList<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<'a, T> IntoIterator for &'a CowList<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_cow_list_is_a_separate_copy() {
        let first: CowList<u8> = vec![1].into();
        let mut second = first.clone();
        assert!(first.ptr_eq(&second));
        second.push(2);
        assert_eq!(first, [1]);
        assert_eq!(second, [1, 2]);
        assert_ne!(first, second);
        assert_eq!(first, CowList::from(vec![1]));
    }
}

//! Admission of readers.

use std::sync::Arc;

use super::shared::HubShared;
use crate::sse::error::SubscribeError;
use crate::sync::atomic::Ordering;

impl HubShared {
    pub(in crate::sse) fn enter(self: &Arc<Self>) -> Result<Permit, SubscribeError> {
        if self.is_closed() {
            return Err(SubscribeError::Closed);
        }
        let permit = |seats: usize| (seats < self.config.subscribers).then_some(seats + 1);
        match self.seats.fetch_update(Ordering::AcqRel, Ordering::Relaxed, permit) {
            Ok(_) => Ok(Permit(Arc::clone(self))),
            Err(_) => {
                self.state().stats.refused += 1;
                Err(SubscribeError::Full)
            }
        }
    }
}

#[derive(Debug)]
pub(in crate::sse) struct Permit(pub(in crate::sse) Arc<HubShared>);

impl Drop for Permit {
    fn drop(&mut self) {
        let seats = self.0.seats.fetch_sub(1, Ordering::AcqRel);
        if let Some(keeper) = self.0.keeper.as_ref().filter(|_| seats == 1) {
            keeper.emptied();
        }
    }
}

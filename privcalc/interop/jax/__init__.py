"""JAX: a ledger's batches and noise in Optax, and for jax_privacy's ``DPExecutionPlan``. Needs the extra ``jax``."""

from privcalc.interop.jax.plans import Released, from_plan, through_ledger, to_plan

__all__ = ["Released", "from_plan", "through_ledger", "to_plan"]

"""The attentional variational posterior g_AVP (section 4 of the paper, Eq. 7): predicts the label from any glimpses.

In: a `Task`. Out: a `Posterior`, which gives the log-probabilities of the labels after any set of glimpses. It is the
paper's masked CNN, or a transformer that reads only the glimpses; trained, calibrated, and stored in one file.
"""

from nogs.runtime.lazy import imported

_HOMES = {
    "Posterior": "nogs.posterior.protocol",
    "PosteriorConfig": "nogs.posterior.config",
    "entropy": "nogs.posterior.protocol",
    "load_posterior": "nogs.posterior.store",
    "save_posterior": "nogs.posterior.store",
    "train_posterior": "nogs.posterior.training",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = imported(__name__, _HOMES)  # lazy: a recipe needs only the fields

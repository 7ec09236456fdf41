"""The attentional variational posterior g_AVP (section 4 of the paper, Eq. 7): what do these glimpses say of the label?

In: a `Task`. Out: a `Posterior`, which gives the log-probabilities of the labels after any set of glimpses: the paper's
masked CNN, or a transformer that reads the glimpses alone; trained, calibrated, and kept in one file.
"""

"""Which machines, and how many, would carry what runs at the least money."""

from tightship.fit.answering import answer
from tightship.fit.model import Asked, Fitted


def fit(asked: Asked) -> Fitted:
    """Return alternatives for the pods of a pool or a cluster, each beside a proven bound.

    Raises :class:`~tightship.fit.model.FitError` that names what can't be answered, and what is allowed.
    """
    return answer(asked)

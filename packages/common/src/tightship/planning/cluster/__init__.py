"""A cluster as decisions see it: the snapshot, and the state that makes snapshots."""

from tightship.planning.cluster.budgets import Budgets as Budgets
from tightship.planning.cluster.snapshot import FORBIDDEN as FORBIDDEN
from tightship.planning.cluster.snapshot import NOT_IN_FILE as NOT_IN_FILE
from tightship.planning.cluster.snapshot import NOT_SERVED as NOT_SERVED
from tightship.planning.cluster.snapshot import Anew as Anew
from tightship.planning.cluster.snapshot import Headroom as Headroom
from tightship.planning.cluster.snapshot import NodeView as NodeView
from tightship.planning.cluster.snapshot import Snapshot as Snapshot
from tightship.planning.cluster.snapshot import Starting as Starting
from tightship.planning.cluster.state import ClusterState as ClusterState

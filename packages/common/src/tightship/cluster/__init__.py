"""A cluster as decisions see it: the snapshot, and the state that makes snapshots."""

from tightship.cluster.snapshot import FORBIDDEN as FORBIDDEN
from tightship.cluster.snapshot import NOT_IN_FILE as NOT_IN_FILE
from tightship.cluster.snapshot import NOT_SERVED as NOT_SERVED
from tightship.cluster.snapshot import Anew as Anew
from tightship.cluster.snapshot import Budgets as Budgets
from tightship.cluster.snapshot import Headroom as Headroom
from tightship.cluster.snapshot import NodeView as NodeView
from tightship.cluster.snapshot import Snapshot as Snapshot
from tightship.cluster.snapshot import Starting as Starting
from tightship.cluster.state import ClusterState as ClusterState

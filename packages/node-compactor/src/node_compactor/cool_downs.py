"""How long pools pause after what has happened to them: a section of the compactor's settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tightship.app.settings.fields import Seconds


class CoolDownKeys(BaseModel):
    """When to pause: after what has happened to a pool, or to any pool.

    The defaults are what users of Cluster Autoscaler and of node-refiner expect, each pause where it does its work:

    * *Node added*, 10 minutes for its pool, none for the others. A new node is evidence of load that is still finding
      its place. Cluster Autoscaler waits as long (``--scale-down-delay-after-add``), by default for all groups at once,
      node-refiner an hour for the whole cluster; but in a cluster of many pools some node is always new, and nothing
      would ever be removed, which is why ``--scale-down-delay-type-local`` exists. Who wants it global sets it.
    * *Node deleted*, none, as in Cluster Autoscaler and the older controller: one node goes at a time, and the next is
      judged on the cluster as it is then.
    * *Drain failed*, 10 minutes for its pool (node-refiner's), whose nodes run the same workloads, so that the next
      drain would likely fail as well and only move pods about; 3 minutes for all
      (``--scale-down-delay-after-failure``). The node itself has its own, growing ``backoff``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    after_added: Seconds = Field(default=600.0, alias="coolDownAfterNodeAdded")
    """Pause of a pool that got a node. A pool may have its own."""
    after_deleted: Seconds = Field(default=0.0, alias="coolDownAfterNodeDeleted")
    """Pause of a pool whose node a drain has removed. A pool may have its own."""
    after_failure: Seconds = Field(default=600.0, alias="coolDownAfterFailure")
    """Pause of a pool in which a drain was given up. A pool may have its own."""
    all_after_added: Seconds = Field(default=0.0, alias="clusterCoolDownAfterNodeAdded")
    """Pause of all pools when any got a node."""
    all_after_deleted: Seconds = Field(default=0.0, alias="clusterCoolDownAfterNodeDeleted")
    """Pause of all pools when a drain has removed a node."""
    all_after_failure: Seconds = Field(default=180.0, alias="clusterCoolDownAfterFailure")
    """Pause of all pools when a drain was given up."""

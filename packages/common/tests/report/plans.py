"""A plan made by hand: three nodes that go, one of them by way of another, and names that mean harm."""

from __future__ import annotations

from tightship.documents.document import (
    Generator,
    KeptBy,
    MoveEntry,
    NodeEntry,
    NodePlan,
    NodeTotals,
    PodCounts,
    RefusalEntry,
    SettingsView,
    Share,
    ShareTotals,
    Source,
    Summary,
)

GIB = 1 << 30
HOSTILE = "<script>pwned=1</script><img src=x onerror=pwned=1>\"' onmouseover=pwned=1 \u2028\u202egnp.exe\x1b&amp;"
"""What a name may not be, and a label, a detail or the answer of a webhook may."""


def share(requested: int, allocatable: int) -> Share:
    return Share(requested, allocatable, round(requested / allocatable, 4))


def node(
    name: str,
    *refusals: RefusalEntry,
    cpu: int = 2000,
    pool: str = "web",
    order: int | None = None,
    moves: tuple[MoveEntry, ...] = (),
) -> NodeEntry:
    return NodeEntry(
        name=name,
        pool=pool,
        created_at="2026-03-01T00:00:00Z",
        age_seconds=86400 * 9,
        ready=True,
        decision="keep" if order is None else "remove",
        order=order,
        round=None if order is None else 1,
        cpu_milli=share(cpu, 8000),
        memory_bytes=share(4 * GIB, 32 * GIB),
        other={"nvidia.com/gpu": share(1, 4)} if pool == "gpu" else {},
        pods=PodCounts(total=5, evictable=4, with_node=1, leaving=0),
        moves=moves,
        reasons=tuple(dict.fromkeys(each.reason for each in refusals)),
        refusals=refusals,
    )


def move(pod: str, to: str, cpu: int = 1000) -> MoveEntry:
    return MoveEntry(pod, "ReplicaSet/x", cpu, 2 * GIB, to, None, "shop/pdb" if pod == "shop/cart-1" else None)


def refusal(reason: str, subject: str, detail: str = "why", fix: str | None = "do that") -> RefusalEntry:
    return RefusalEntry(reason, subject, detail, fix)


def plan(*nodes: NodeEntry, warnings: tuple[str, ...] = (), source: str = "cluster.json") -> NodePlan:
    """Return the plan of *nodes*, its sums counted."""
    gone = [each for each in nodes if each.decision == "remove"]
    stay = [each for each in nodes if each.decision == "keep"]
    moved = {each.pod: each for one in gone for each in one.moves}

    def totals(resource: str) -> ShareTotals:
        shares = {each.name: getattr(each, resource) for each in nodes}
        came = sum(getattr(each, resource) for each in moved.values())

        def add(of: list[NodeEntry], extra: int) -> Share:
            requested = sum(shares[each.name].requested for each in of) + extra
            allocatable = sum(shares[each.name].allocatable for each in of)
            return share(requested, allocatable) if allocatable else Share(0, 0, None)

        return ShareTotals(add(list(nodes), 0), add(stay, came))

    words = sorted({word for each in stay for word in each.reasons})
    return NodePlan(
        api_version="tightship.dev/v1",
        generator=Generator("node-compactor", "0"),
        source=Source("file", source),
        evaluated_at="2026-03-10T00:00:00Z",
        strategy="least-utilized",
        placement="likely",
        settings=SettingsView("limit 0.75", {}),
        summary=Summary(
            nodes=NodeTotals(len(nodes), len(stay), len(gone)),
            cpu_milli=totals("cpu_milli"),
            memory_bytes=totals("memory_bytes"),
            evictions=sum(len(each.moves) for each in gone),
            pods_evicted=len({move.pod for each in gone for move in each.moves}),
            rounds=1,
            waits_for=("shop/pdb",) if gone else (),
            kept_by=tuple(
                KeptBy(
                    word,
                    sum(word in each.reasons for each in stay),
                    sum(each.reasons == (word,) for each in stay),
                )
                for word in words
            ),
            scheduler=None,
        ),
        nodes=nodes,
        warnings=warnings,
    )


def small_plan() -> NodePlan:
    """web-1 goes to web-3 and web-4; web-2, which takes a pod of web-1 first, passes it on to web-4."""
    return plan(
        node(
            "web-1",
            cpu=3000,
            order=1,
            moves=(move("shop/cart-1", "web-3"), move("shop/cart-2", "web-2"), move("shop/pay-1", "web-4")),
        ),
        node("web-2", cpu=500, order=2, moves=(move("shop/cart-2", "web-4"),)),
        node("gpu-1", pool="gpu", order=3),
        node("web-3", refusal("PdbSpentByPlan", "shop/cart-9"), refusal("PdbSpentByPlan", "shop/cart-8")),
        node(
            "web-4", refusal("NoPlace", "shop/big-1", "asks for 6 cores", None), refusal("LocalStorage", "shop/big-1")
        ),
        node("gpu-2", refusal("NoPlace", "ml/train-1"), pool="gpu"),
        warnings=("PodDisruptionBudgets are not in the file: evictions they forbid are not seen",),
    )


def hostile_plan() -> NodePlan:
    evil = refusal("NoPlace", HOSTILE, HOSTILE, HOSTILE)
    return plan(
        node(HOSTILE + "1", pool=HOSTILE, order=1, moves=(move(HOSTILE, HOSTILE + "2"),)),
        node(HOSTILE + "2", evil, pool=HOSTILE),
        warnings=(HOSTILE,),
        source=HOSTILE,
    )


def large_plan(count: int) -> NodePlan:
    """*count* nodes, half of which go, with two pods each."""
    half = count // 2
    goes = (
        node(
            f"node-{number:05}",
            pool=f"pool-{number % 7}",
            order=number + 1,
            moves=tuple(
                move(f"ns-{number % 50}/pod-{number}-{part}", f"node-{half + number:05}", 500) for part in (1, 2)
            ),
        )
        for number in range(half)
    )
    stays = (
        node(f"node-{half + number:05}", refusal("NoPlace", f"ns/pod-{number}"), pool=f"pool-{number % 7}")
        for number in range(half)
    )
    return plan(*goes, *stays)

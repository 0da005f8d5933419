"""Makes ``tightship/prices/on_demand_prices.json``: what machines of three clouds cost on demand.

    python packages/common/tooling/on_demand_prices.py AWS AZURE GOOGLE

Each argument is a checkout of a repository whose maintainers ask the cloud's public price API again and again and keep
the answers: aws/karpenter-provider-aws, Azure/karpenter-provider-azure and cloudpilot-ai/karpenter-provider-gcp. Of
each cloud one region is taken, and of it every machine type that a node can have.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "src/tightship/prices/on_demand_prices.json"
_PRICING = "pkg/providers/pricing"
_GO_ENTRY = re.compile(r'"([A-Za-z0-9._-]+)":\s+([0-9.]+),')


def _file(checkout: str, name: str) -> str:
    command = ["git", "-C", checkout, "show", f"HEAD:{_PRICING}/{name}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _changed(checkout: str, name: str) -> str:
    """Return the day on which *name* was last changed."""
    command = ["git", "-C", checkout, "log", "-1", "--format=%cs", "HEAD", "--", f"{_PRICING}/{name}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _generated(text: str) -> str:
    found = re.search(r"// generated at (\d{4}-\d\d-\d\d)T", text)
    if found is None:
        raise SystemExit("the file does not say when it was generated")
    return found[1]


def _go_map(text: str, region: str) -> dict[str, float]:
    """Return the prices of *region* from Go source: those between its comment and the next one of a region."""
    parts = re.split(r"^\s*// ([a-z0-9-]+)$", text, flags=re.MULTILINE)
    return {name: float(price) for name, price in _GO_ENTRY.findall(parts[parts.index(region) + 1])}


def _aws(checkout: str) -> dict[str, object]:
    text = _file(checkout, "zz_generated.pricing_aws.go")
    prices = _go_map(text, "us-east-1")
    return {"cloud": "AWS", "region": "us-east-1", "date": _generated(text), "prices": prices}


def _azure(checkout: str) -> dict[str, object]:
    text = _file(checkout, "zz_generated.pricing.go")
    prices = {name: price for name, price in _go_map(text, "eastus").items() if name.startswith("Standard_")}
    return {"cloud": "Azure", "region": "eastus", "date": _generated(text), "prices": prices}


def _google(checkout: str) -> dict[str, object]:
    name, region = "initial-prices.json", "us-central1"
    prices = json.loads(_file(checkout, name))["prices"][region]["on_demand"]
    return {"cloud": "Google Cloud", "region": region, "date": _changed(checkout, name), "prices": prices}


def main(aws: str, azure: str, google: str) -> None:
    """Write the list anew from the three checkouts."""
    clouds = [_aws(aws), _azure(azure), _google(google)]
    for each in clouds:
        prices = {name: round(price, 6) for name, price in sorted(each["prices"].items()) if price}  # type: ignore[attr-defined]
        if len(prices) < 100:
            raise SystemExit(f"{each['cloud']} has only {len(prices)} prices: the source has changed")
        each["prices"] = prices
        print(f"{each['cloud']} {each['region']}, {each['date']}: {len(prices):,} machine types")
    # One type a line, so that a change shows what became dearer.
    OUTPUT.write_text(json.dumps(clouds, indent=0) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])

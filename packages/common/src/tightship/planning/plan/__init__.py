"""Plans: what would be removed, in what order, and why the rest stays."""

from tightship.planning.plan.model import Candidate as Candidate
from tightship.planning.plan.model import Move as Move
from tightship.planning.plan.model import Placement as Placement
from tightship.planning.plan.model import Plan as Plan
from tightship.planning.plan.model import Proven as Proven
from tightship.planning.plan.model import Removal as Removal
from tightship.planning.plan.model import Searched as Searched
from tightship.planning.plan.model import SearchRules as SearchRules
from tightship.planning.plan.model import SteeringRules as SteeringRules
from tightship.planning.plan.planner import Going as Going
from tightship.planning.plan.planner import Planner as Planner
from tightship.planning.plan.reserving import PlanStart as PlanStart
from tightship.planning.plan.strategies import STRATEGIES as STRATEGIES
from tightship.planning.plan.strategies import STRATEGIES_BY_CPU as STRATEGIES_BY_CPU
from tightship.planning.plan.strategies import Forecast as Forecast
from tightship.planning.plan.strategies import Gates as Gates
from tightship.planning.plan.strategies import Improve as Improve
from tightship.planning.plan.strategies import Judgement as Judgement
from tightship.planning.plan.strategies import Ordered as Ordered
from tightship.planning.plan.strategies import PerPool as PerPool
from tightship.planning.plan.strategies import Strategy as Strategy
from tightship.planning.plan.strategies import expected as expected
from tightship.planning.plan.strategies import forecast as forecast
from tightship.planning.plan.strategies import make_plan as make_plan

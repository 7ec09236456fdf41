from nogs.bank.generators import Generator as Generator
from nogs.completion.protocol import Completion as Completion
from nogs.data import load_task as load_task
from nogs.data.task import Task as Task
from nogs.design.search import LocationSearch as LocationSearch
from nogs.glimpse import Grid as Grid
from nogs.model.loading import load as load
from nogs.posterior.protocol import Posterior as Posterior
from nogs.recipes import recipe as recipe
from nogs.runtime.errors import InputError as InputError
from nogs.runtime.executors import Executor as Executor
from nogs.sequences import Sequences as Sequences
from nogs.stages.order import run as run
from nogs.stages.settings import Settings as Settings

__version__: str

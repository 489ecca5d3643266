"""Variants that are not gemmport's own: what a contract can express without a change to Plan or Backend."""

from extensions.aligned import Aligned
from extensions.per_architecture import PerArchitecture
from extensions.pretransposed import Pretransposed
from extensions.split_k import SplitK

EXTENSIONS = (SplitK(), Pretransposed(), PerArchitecture(), Aligned())

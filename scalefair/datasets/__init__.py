"""Data with sensitive attributes: two real tables included in the package, three synthetic ones.

Nothing is downloaded. The synthetic tables come with the target they would have without bias.
"""

from scalefair.datasets._income import make_biased_income
from scalefair.datasets._shipped import load_adult, load_communities_crime
from scalefair.datasets._toys import make_toy1, make_toy2

__all__ = ["load_adult", "load_communities_crime", "make_biased_income", "make_toy1", "make_toy2"]

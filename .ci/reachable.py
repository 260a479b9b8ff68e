"""Exit 0 if pypi.org knows the vulnerabilities of a version that has some, 1 otherwise.

An index that stands in for it may know no versions, and an audit would then find nothing, ever.
"""

import json
import sys
from urllib.request import urlopen

try:
    with urlopen("https://pypi.org/pypi/pillow/9.0.0/json", timeout=20) as answer:
        known = json.load(answer)["vulnerabilities"]
except (OSError, ValueError, KeyError) as error:
    print(f"pypi.org: {error}", file=sys.stderr)
    sys.exit(1)
sys.exit(not known)

"""Exit 0 if the address answers with a list of vulnerabilities, 1 otherwise."""

import json
import sys
from urllib.error import URLError
from urllib.request import urlopen

try:
    with urlopen(sys.argv[1], timeout=20) as answer:
        sys.exit("vulnerabilities" not in json.load(answer))
except (URLError, OSError, ValueError) as error:
    print(error, file=sys.stderr)
    sys.exit(1)

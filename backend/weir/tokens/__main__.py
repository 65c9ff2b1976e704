import argparse
import sys

from weir.tokens import commands

parser = argparse.ArgumentParser(prog="python -m weir.tokens", description=commands.__doc__)
commands.add_to(parser)
sys.exit(commands.run(parser.parse_args()))

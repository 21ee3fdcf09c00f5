"""Become a shell: a part of a supervisor is a module of Python."""

import os
import sys

if __name__ == "__main__":
    os.execvp("sh", ["sh", *sys.argv[1:]])

"""The command line: ``pellucid`` and its commands."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence

from pellucid import __version__
from pellucid.errors import PellucidError, missing_extra
from pellucid.threads import sleep_at_barriers


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. A refusal is one sentence on stderr and status 2."""
    arguments = _parse(argv)
    if not arguments.is_vllm:  # another program's threads are its own business
        sleep_at_barriers()
    try:
        status = int(arguments.command(arguments))
        sys.stdout.flush()
        return status
    except PellucidError as error:
        return _refuse(error)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        return _refuse(missing)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"pellucid: the output cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pellucid: interrupted.", file=sys.stderr)
        return 130


def _refuse(error: PellucidError) -> int:
    print(f"pellucid: {error}", file=sys.stderr)
    return 2


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """What another engine is asked for beyond our own options goes to ``others``, for its own parser."""
    parser = _parser()
    arguments, others = parser.parse_known_args(argv)
    if arguments.is_vllm:  # an option right behind `pellucid vllm` is vLLM's too
        arguments.args = [*others, *arguments.args]
    elif others and getattr(arguments, "engine", "pellucid") == "pellucid":
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    arguments.others = others
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pellucid", description="A PagedAttention engine you can see through: see it, prove it."
    )
    parser.add_argument("--version", action="version", version=f"pellucid {__version__}")
    parser.set_defaults(is_vllm=False)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_views(commands)
    _add_vllm(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        help="run a script written for vLLM's offline API, unmodified",
        description="Run SCRIPT as it is, with Pellucid standing in for vllm.",
    )
    run.add_argument("--model", help="use this model for every LLM of the script")
    run.add_argument("script", metavar="SCRIPT", help="a Python file")
    run.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="what the script gets as its arguments")
    run.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from pellucid.compat import run

    args, model = list(arguments.args), arguments.model
    if args and model is None:  # pellucid run SCRIPT --model M, or --model=M
        if args[0] == "--model" and len(args) > 1:
            model, args = args[1], args[2:]
        elif args[0].startswith("--model="):
            model, args = args[0].removeprefix("--model="), args[1:]
    return run(Path(arguments.script), args, model)


def _add_views(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from pellucid.lab import command, soak_command, walk_command
    from pellucid.watch import explain_command, replay_command, watch_command

    for name, module, text, description in (
        (
            "prove",
            command,
            "put the claims of PagedAttention to the proof on a real model",
            "Check each claim on a real run, with its evidence. Exit status 0 only if nothing is refuted.",
        ),
        (
            "step",
            walk_command,
            "walk through one situation, one engine step at a time",
            "Enter is one engine step: what the scheduler decided and why, and the blocks before and after.",
        ),
        (
            "soak",
            soak_command,
            "hunt for counterexamples under random load",
            "Check every invariant at every step of random load, and every output against the request alone. "
            "A failure is shrunk to a small case in a file. Exit status 0 only if nothing is wrong.",
        ),
        (
            "watch",
            watch_command,
            "see the blocks of a running engine",
            "The block map, a row for every request, and the pool in numbers, live. q ends it. "
            "Exit status 1 if the engine is lost.",
        ),
        (
            "replay",
            replay_command,
            "play back what watch --record wrote, or a saved journal",
            "The same picture, with pause, single steps, speed and seek.",
        ),
        (
            "explain",
            explain_command,
            "say why a request hit or missed the prefix cache",
            "What the last admission of a request asked for, what it found, and the reason for all that it did not.",
        ),
    ):
        parser = commands.add_parser(name, help=text, description=description)
        module.add_arguments(parser)
        parser.set_defaults(command=module.main)


def _add_vllm(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from pellucid.attach import doctor_command, vllm_command

    vllm = commands.add_parser(
        "vllm",
        help="start this environment's vLLM so that it can be watched",
        usage="pellucid vllm serve MODEL [any option of vllm]",
        add_help=False,  # --help is vLLM's too
    )
    vllm_command.add_arguments(vllm)
    vllm.set_defaults(command=vllm_command.main, is_vllm=True)
    doctor = commands.add_parser(
        "doctor",
        help="which vLLM is here, and whether it can be observed",
        description="Which vLLM is in this environment, whether it lets Pellucid in, and what of it can be observed. "
        "Exit status 0 only if it can be.",
    )
    doctor_command.add_arguments(doctor)
    doctor.set_defaults(command=doctor_command.main)


if __name__ == "__main__":
    sys.exit(main())

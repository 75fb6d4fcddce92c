"""Makes the job of an sbatch command from the script, the options and the environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import field, replace

from cli.exit_codes import CommandError
from cli.slurm.programs import SlurmError
from cli.spec import job_script
from cli.spec.option_sources import Layer, OptionText
from cli.spec.sbatch import option_translation as sbatch_directives
from cli.spec.sbatch.options import JOB_OPTIONS, SWITCHES, from_variables
from cli.spec.sbatch.resources import Option, Translation
from cli.spec.spec_builder import spec_from
from cli.spec.submitter_environment import Submitter
from wire.dataclass import dataclass
from wire.job.spec import JobSpec, spec_problems

COMMAND_LINE = "command line"
_OWN = frozenset(("--parsable", "--quiet", "--test-only", "--verbose", "--wrap"))
"""Options for the command sbatch itself, which do not describe the job."""
_FLAGS = frozenset(f"--{option.name}" for option in JOB_OPTIONS)
_SILENT = frozenset(("--wckey", "--oversubscribe", "--share", "--ignore-pbs", "--get-user-env"))
"""Options that have no effect in Corral. sbatch prints no warning about them."""
_WITH_DEFAULT = frozenset(("--output", "--chdir", "--export"))
"""Options for which sbatch has a default of its own."""
_RUN_FILE = (
    'f=$(mktemp) || exit 1; trap \'rm -f "$f"\' EXIT; printf %s "$1" > "$f"; shift; {interpreter} "$f" "$@"'
)
"""The shell command that runs a script for an interpreter other than a shell or Python. It first writes the
text of the script to a temporary file.
"""
_NOT_UTF_8 = re.compile("[\ud800-\udfff]")
"""The characters that stand for bytes that are not UTF-8 in the text of a script."""
_REFUSED_BY_CONTROLLER = {
    "--account": "Invalid account or account/partition combination specified",
    "--constraint": "Invalid feature specification",
    "--dependency": "Job dependency problem",
    "--partition": "Invalid partition name specified",
}
"""The messages of Slurm about options that slurmctld checks."""
_NO_NUMBER = "Invalid numeric value"
_CONTROLLER_VARIABLES = ("CORRAL_URL", "CORRAL_CONTEXT", "CORRAL_CA")


@dataclass(frozen=True)
class BatchRequest:
    """The input of sbatch: the script with its name and arguments, the options of the command line as (name,
    value), and the environment variables, directory, host and umask of the shell that runs sbatch.
    """

    script: str
    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    host: str = ""
    umask: int | None = None


@dataclass(frozen=True)
class BatchJob:
    """The job to submit, the warnings for the user, and whether sbatch waits for the end of the job."""

    spec: JobSpec
    warnings: tuple[str, ...] = ()
    wait: bool = False
    singleton: bool = False
    """True if the job must wait until all active jobs with its name and user have ended
    (--dependency=singleton).
    """
    flags: frozenset[str] = frozenset()
    """The options in `_OWN`, such as --parsable, that the user or the script has set."""
    reservations: tuple[str, ...] = ()
    """The names in --reservation. sbatch refuses the job if one of these reservations does not exist."""
    partitions: tuple[str, ...] = ()
    """The partitions of --partition if it names several; `spec` has the first of them."""


def batch_job(request: BatchRequest) -> BatchJob:
    """Return the job that the request describes. If parts of the request are invalid, raise one SlurmError
    with all errors.

    1. Collect the options: #SBATCH lines, then SBATCH_* variables, then the command line. If an option is
       written several times, the last value counts.
    2. Translate these options together to options of Corral. #CORRAL lines of the script override the
       translated options.
    3. Add the defaults of sbatch: the whole environment, the present directory, and the output file.
    """
    check_script(request.script)
    try:
        lines = job_script.directives(request.script, request.name)
        options = [*lines.sbatch, *_variables("SBATCH_", request), *_command_line(request)]
        return _job(_command(request), options, lines.corral, request)
    except CommandError as error:
        raise SlurmError(_wrong(error.message), *error.hint.splitlines(), code=255) from None


def allocation(request: BatchRequest, prefix: str, holder: tuple[str, ...]) -> BatchJob:
    """Return the job that holds the nodes for srun or salloc, and runs the command `holder`. `prefix` (SRUN_
    or SALLOC_) begins the names of the environment variables that set options. If parts of the request are
    invalid, raise one SlurmError with all errors.
    """
    try:
        options = [*_variables(prefix, request), *_command_line(request)]
        made = _job(holder, options, {}, request)
    except CommandError as error:
        raise SlurmError(*error.message.splitlines(), *error.hint.splitlines()) from None
    return replace(made, spec=replace(made.spec, output="", error="", batch=True))


def _job(command: tuple[str, ...], options: list[Option], corral: Layer, request: BatchRequest) -> BatchJob:
    flags = frozenset(option.flag for option in options if option.flag in _OWN)
    options, singleton = _without_singleton([each for each in options if each.flag not in _OWN])
    options, partitions = _with_first_partition(options)
    # An empty value, as in --output=, means the default.
    options = [each for each in options if each.value != "" or each.flag not in _WITH_DEFAULT]
    given = {option.flag: option for option in options if option.value != ""}
    translated = sbatch_directives.translate([*_defaults(given, request), *options])
    if translated.problems:
        raise _refused(translated.problems)
    translated.pairs[:] = [pair for pair in translated.pairs if _is_set(pair, request.environment)]
    shell = Submitter(request.umask, request.environment)
    spec = spec_from(command, request.name, _layer(corral, translated), request.environment, shell)
    spec = replace(spec, env={**_slurm_variables(request), **spec.env})
    found = [f"{where}: {sentence}" for where, sentence in spec_problems(spec)]
    if found and all(sentence.startswith("array: ") for sentence in found):
        raise SlurmError(*found, "Batch job submission failed: Invalid job array specification")
    if found:
        raise SlurmError(*map(_wrong_field, found), code=255)
    noted = (warning for warning in translated.warnings if not _SILENT & set(warning.split()))
    named = given["--reservation"].value if "--reservation" in given else ""
    reservations = tuple(filter(None, (named or "").split(",")))
    # If a #CORRAL line of the script has set another queue, ignore the list of --partition.
    partitions = partitions if partitions and spec.queue == partitions[0] else ()
    several = (f"--reservation: only {reservations[0]} is used",) if len(reservations) > 1 else ()
    return BatchJob(spec, (*noted, *several), translated.wait, singleton, flags, reservations, partitions)


def check_script(text: str) -> None:
    """Raise SlurmError with the message of Slurm's sbatch if the text is no valid script."""
    if not text:
        raise SlurmError("Batch script is empty!")
    if not text.strip():
        raise SlurmError("Batch script contains only whitespace!")
    if not text.startswith("#!"):
        raise SlurmError(
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        )
    if len(text.encode("utf-8", "surrogatepass")) > job_script.MAX_SCRIPT_BYTES:
        raise SlurmError(
            f"Batch script has more than {job_script.MAX_SCRIPT_BYTES:,} bytes",
            "Put the large part on a shared file system, and call it from a short script.",
        )
    wrong = next((n for n, line in enumerate(text.split("\n"), 1) if _NOT_UTF_8.search(line)), 0)
    if wrong:
        raise SlurmError(
            f"Batch script is not UTF-8 text in line {wrong}",
            "Convert it, for example: iconv -f LATIN1 -t UTF-8 script > new_script",
        )
    if "\0" in text:
        raise SlurmError(
            "The Slurm controller does not allow scripts that", "contain a NULL character '\\0'."
        )
    if "\r\n" in text:
        raise SlurmError(
            "Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n)."
        )


def _variables(prefix: str, request: BatchRequest) -> list[Option]:
    return [
        Option(f"--{name}", value or None, variable)
        for name, value, variable in from_variables(prefix, request.environment)
    ]


def _command_line(request: BatchRequest) -> list[Option]:
    return [
        Option(f"--{name}", None if name in SWITCHES else value, COMMAND_LINE)
        for name, value in request.options
    ]


def _command(request: BatchRequest) -> tuple[str, ...]:
    """Return the command that runs the script. The command contains the text of the script, so that later
    changes of the file have no effect on the job.
    """
    try:
        return job_script.command_of(request.script, request.name, request.name, list(request.arguments))
    except job_script.OtherInterpreter as other:
        run = _RUN_FILE.format(interpreter=shlex.join(other.interpreter))
        return ("/bin/sh", "-c", run, request.name, request.script, *request.arguments)


def _without_singleton(options: list[Option]) -> tuple[list[Option], bool]:
    """Return the options without `singleton` in --dependency, and whether --dependency contained
    `singleton`.
    """
    last = next((option for option in reversed(options) if option.flag == "--dependency"), None)
    if last is None or "singleton" not in (last.value or "").split(","):
        return options, False
    rest = ",".join(part for part in (last.value or "").split(",") if part != "singleton")
    kept = [option for option in options if option.flag != "--dependency"]
    return kept + ([replace(last, value=rest)] if rest else []), True


def _with_first_partition(options: list[Option]) -> tuple[list[Option], tuple[str, ...]]:
    """Return the options with only the first partition of --partition, and all partitions if --partition
    names several.
    """
    last = next((option for option in reversed(options) if option.flag == "--partition"), None)
    names = tuple(dict.fromkeys(filter(None, (last.value or "").split(",")))) if last else ()
    if last is None or len(names) < 2:
        return options, ()
    kept = [option for option in options if option.flag != "--partition"]
    return [*kept, replace(last, value=names[0])], names


def _defaults(given: Mapping[str, Option], request: BatchRequest) -> list[Option]:
    """Return the options that sbatch has by default: --output, --chdir and --export=ALL. Options that the
    user has written override these.
    """
    output = "slurm-%A_%a.out" if "--array" in given else "slurm-%j.out"
    found = [Option("--output", output, COMMAND_LINE), Option("--chdir", request.directory, COMMAND_LINE)]
    if "--export" not in given:
        found.append(Option("--export", "ALL", COMMAND_LINE))
    return found


def _layer(corral: Layer, translated: Translation) -> Layer:
    from cli.spec.option_sources import merged

    weaker: dict[str, list[OptionText]] = {}
    job_script.add_options(weaker, translated.pairs)
    return merged(corral, weaker)


def _is_set(pair: tuple[str, OptionText], environment: Mapping[str, str]) -> bool:
    """Return False if the option exports a variable (--export=NAME) that the submitting shell does not have.
    As in Slurm, sbatch ignores such a variable without a warning.
    """
    name, text = pair
    return name != "env" or "=" in text.text or text.text in ("all", "none") or text.text in environment


def _refused(problems: list[str]) -> SlurmError:
    """Return the error of sbatch for invalid options. The exit code is 255. If all problems are about options
    of `_REFUSED_BY_CONTROLLER`, it is 1, because in Slurm it is slurmctld that refuses these, and not sbatch.
    It is 1 for numbers, too.
    """
    lines = [_wrong(problem) for problem in problems]
    flags = [problem.partition(": ")[2].partition(": ")[0] for problem in problems]
    if all(flag in _REFUSED_BY_CONTROLLER for flag in flags):
        return SlurmError(*lines, f"Batch job submission failed: {_REFUSED_BY_CONTROLLER[flags[-1]]}")
    return SlurmError(*lines, code=1 if all(line.startswith(_NO_NUMBER) for line in lines) else 255)


def _wrong_field(problem: str) -> str:
    """Return an error about a JobSpec field, such as `open_mode: …`, in the form of sbatch: `Invalid
    --open-mode specification: …`.
    """
    field_name, _, reason = problem.partition(": ")
    flag = f"--{field_name.replace('_', '-')}"
    return f"Invalid {flag} specification: {reason}" if flag in _FLAGS else problem


def _wrong(problem: str) -> str:
    """Return an error of the translation, such as `train.sh line 3: --time: …`, in the form of sbatch:
    `Invalid --time specification: … (train.sh line 3)`.
    """
    where, _, rest = problem.partition(": ")
    flag, _, reason = rest.partition(": ")
    if reason.endswith(" is not a number"):
        value = reason.removesuffix(" is not a number")[1:-1]
        place = "" if where == COMMAND_LINE else f" ({where})"
        return f'{_NO_NUMBER} "{value}" for {flag}.{place}'
    if flag.startswith("--") and reason:
        return f"Invalid {flag} specification: {reason} ({where})"
    return problem


def _slurm_variables(request: BatchRequest) -> dict[str, str]:
    """Return environment variables that only sbatch can set: the directory and the host of sbatch, and the
    address of the controller, so that the job can use Slurm's commands.
    """
    return {
        "SLURM_SUBMIT_DIR": request.directory,
        "SLURM_SUBMIT_HOST": request.host,
        **{name: request.environment[name] for name in _CONTROLLER_VARIABLES if name in request.environment},
    }

"""Error codes: the command line."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

GROUP = Group(
    "Command line",
    (
        Entry(
            "usage-wrong",
            "The command is used wrongly",
            "unknown argument: --conn; see custody check --help",
            "There is no such command, option or value, or one that is needed is missing. Nothing was sent.",
            "Do what the text says. --help after the name of a command shows what it takes.",
            (),
        ),
        Entry(
            "options-conflict",
            "Options do not go together",
            "--conn-id and --base-url are both given. Give one of them.",
            "Two options contradict each other, or one needs another.",
            "Do what the text says. --help shows the options of a command.",
            ("CustodyConfigurationError",),
        ),
        Entry(
            "password-in-option",
            "A password is in an option",
            "--proxy contains a password, which others on this machine can read. Put the URL into the environment "
            "variable HTTPS_PROXY.",
            "Arguments of a command can be read by other users of the machine.",
            "Put the URL into the environment variable HTTPS_PROXY.",
            ("CustodyConfigurationError",),
        ),
        Entry(
            "output-closed",
            "Standard output cannot be written",
            "standard output cannot be written: No space left on device",
            "The disk is full, or standard output is closed.",
            "Make room, or write to another place.",
            ("OutputError",),
        ),
        Entry(
            "examples-not-copied",
            "Examples cannot be listed or copied",
            "nothing was copied: dags/custody_first_dag.py exists already. Choose another folder, or name the examples "
            "to copy.",
            "There is no example with this name, a file of the same name exists, the folder cannot be written, or the "
            "package was installed without its examples.",
            "Do what the text says. 'custody examples' lists those that there are.",
            ("CustodyConfigurationError",),
        ),
    ),
)

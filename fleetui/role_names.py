"""The names of the roles, which settings mention before there are models."""

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    CLUSTER_ADMINISTRATOR = "cluster-administrator"


ADMINISTRATOR = "administrator"
"""What makes a user a superuser; no group has this name."""
ROLE_NAMES = (*(role.value for role in Role), ADMINISTRATOR)

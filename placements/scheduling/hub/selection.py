"""Which objects on the hub a placement takes along (`spec/lifecycle.md` A.16, B.2.2, B.2.4)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from placements.scheduling.door.builtin_kinds import KindScope, scope_of
from placements.scheduling.door.parsing import shown
from placements.scheduling.door.resource_selectors import (
    ResourceSelector,
    SelectionScope,
    is_reserved_namespace,
    namespaced_kind_problem,
    reserved_namespace_problem,
)
from placements.scheduling.faults import Caveat, Problem, faults_of, format_path, split_path
from placements.scheduling.hub.eligibility import is_ever_placed, why_left_out
from placements.scheduling.hub.inventory import Inventory
from placements.scheduling.hub.matching import is_namespace_selector, matcher, own_namespace
from placements.scheduling.hub.objects import HubObject, ObjectKey
from placements.scheduling.hub.ordering import ordered

_LISTED = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """What a placement takes along, in the order of a snapshot, and what may surprise about it."""

    objects: tuple[HubObject, ...]
    caveats: tuple[Caveat, ...] = ()


@dataclass(slots=True)
class _Finding:
    """What one selector finds; problems and remarks have places inside the selector."""

    objects: list[HubObject] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    remarks: list[Problem] = field(default_factory=list)

    def remark(self, key: str, code: str, message: str) -> None:
        self.remarks.append(Problem((key,) if key else (), code, message))


def select(
    selectors: tuple[ResourceSelector, ...],
    objects: Iterable[HubObject],
    *,
    path: str = "spec.resourceSelectors",
) -> Selection:
    """Find what any of the selectors selects; raise Faults if they cannot be followed.

    That is: an object selected twice, a namespace missing whose resources others select, a kind
    that lives inside namespaces selected without one, a namespace of the hub itself.
    """
    hub, within = Inventory(objects), own_namespace(selectors)
    findings = [_find(selector, hub, within) for selector in selectors]
    problems = [problem.under(index) for index, each in enumerate(findings) for problem in each.problems]
    problems += _duplicates(findings, path)
    if problems:
        raise faults_of(problems, None, path=path)
    remarks = [remark.under(index) for index, each in enumerate(findings) for remark in each.remarks]
    outer = split_path(path)
    return Selection(
        ordered(each for finding in findings for each in finding.objects),
        tuple(Caveat(each.code, format_path((*outer, *each.keys)), each.message) for each in remarks),
    )


def _duplicates(findings: Sequence[_Finding], path: str) -> Iterator[Problem]:
    """Name one object for each two selectors that overlap."""
    owners: dict[ObjectKey, int] = {}
    shared: dict[tuple[int, int], list[HubObject]] = {}
    for index, finding in enumerate(findings):
        for each in finding.objects:
            owner = owners.setdefault(each.key, index)
            if owner != index:
                shared.setdefault((owner, index), []).append(each)
    for (owner, index), twice in shared.items():
        more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
        message = f"selects {ordered(twice)[0]}{more}, as {path}[{owner}] does already"
        yield Problem((index,), "duplicate", message, "each object by one selector")


def _find(selector: ResourceSelector, hub: Inventory, within: str | None) -> _Finding:
    if is_namespace_selector(selector):
        return _find_namespaces(selector, hub)
    finding = _Finding()
    if not is_ever_placed(selector.group, selector.kind):
        finding.remark(
            "kind", "never-placed", f"selects nothing: {selector.kind} is a kind that is never placed"
        )
    elif not hub.is_namespaced(selector.group, selector.kind):
        finding.objects += _matches(selector, hub, "", finding)
    elif within is not None:
        finding.objects += _matches(selector, hub, within, finding)
    else:
        finding.problems.append(namespaced_kind_problem(selector.kind))
    return finding


def _matches(selector: ResourceSelector, hub: Inventory, place: str, finding: _Finding) -> list[HubObject]:
    """Find what has the selector's kind, name or labels in a place, and may leave the hub."""
    among = hub.of_kind(selector.group, selector.kind, namespace=place, name=selector.name)
    fits = matcher(selector)
    matching = [each for each in among if fits(each)]
    found = [each for each in matching if each.version == selector.version]
    if len(found) < len(matching):
        _remark_versions(selector, Counter(each.api_version for each in matching), finding)
    if not selector.name:
        return [each for each in found if why_left_out(each, hub.by_key) is None]
    if not matching:
        finding.remark("name", "not-on-the-hub", f"{selector.kind} {shown(selector.name)} is not on the hub")
    for each in found:
        reason = why_left_out(each, hub.by_key)
        if reason:
            finding.remark("name", "never-placed", f"{each} is left out: {reason}")
            return []
    return found


def _remark_versions(selector: ResourceSelector, versions: Counter[str], finding: _Finding) -> None:
    """Say that objects stand on the hub in another version, which would be missed in silence."""
    wanted = f"{selector.group}/{selector.version}".lstrip("/")
    others = ", ".join(sorted(version for version in versions if version != wanted))
    count = versions.total() - versions[wanted]
    message = f"leaves out {count} of kind {selector.kind} that match: on the hub as {others}"
    finding.remark("version", "other-version", message)


def _find_namespaces(selector: ResourceSelector, hub: Inventory) -> _Finding:
    finding = _Finding()
    if selector.name and is_reserved_namespace(selector.name):
        finding.problems.append(reserved_namespace_problem(selector.name))
        return finding
    matching = _matches(selector, hub, "", finding)
    found = [each for each in matching if not is_reserved_namespace(each.name)]
    if len(found) < len(matching):
        reserved = {each.name for each in matching} - {each.name for each in found}
        message = f"leaves out namespaces of the hub itself: {_listing(reserved)}"
        finding.remark("", "reserved-namespace", message)
    finding.objects += found
    match selector.selection_scope:
        case SelectionScope.NAMESPACE_WITH_RESOURCES:
            _add_insides(found, hub, finding)
        case SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS if not found:
            _refuse_missing(finding)
    return finding


def _refuse_missing(finding: _Finding) -> None:
    """Turn what was remarked about the one namespace into faults: the other selectors rest on it."""
    finding.problems += [
        Problem(each.keys, "not-on-the-hub", each.message, "a namespace on the hub")
        for each in finding.remarks
    ]


def _add_insides(namespaces: Sequence[HubObject], hub: Inventory, finding: _Finding) -> None:
    """Add everything inside the namespaces that may leave the hub."""
    inside = [each for namespace in namespaces for each in hub.inside(namespace.name)]
    left_out = {each.kind for each in inside if not is_ever_placed(each.group, each.kind)}
    finding.objects += [
        each
        for each in inside
        if is_ever_placed(each.group, each.kind) and why_left_out(each, hub.by_key) is None
    ]
    if left_out:
        message = f"leaves out kinds that are never placed: {_listing(left_out)}"
        finding.remark("", "never-placed", message)


def _listing(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(found[:_LISTED]) + more


def concerns(selectors: tuple[ResourceSelector, ...], changed: Iterable[HubObject]) -> bool:
    """Tell whether objects can matter to what these selectors select, as they were before or are after.

    For a change hand in both. It may be true for a change that turns out to make no difference, and
    is never false for one that does.
    """
    within = own_namespace(selectors)
    objects = tuple(changed)
    return any(_concerns(selector, within, objects) for selector in selectors)


def _concerns(selector: ResourceSelector, within: str | None, objects: Sequence[HubObject]) -> bool:
    if is_namespace_selector(selector):
        return _concerns_namespaces(selector, objects)
    sort, fits = (selector.group, selector.kind), matcher(selector)
    of_kind = [each for each in objects if (each.group, each.kind) == sort]
    match scope_of(*sort):
        case None:
            return bool(of_kind)  # any of them may tell for the first time where the kind lives
        case KindScope.CLUSTER:
            return any(fits(each) for each in of_kind)
    if sort == ("", "Endpoints"):  # a service decides whether the endpoints of its name are placed
        of_kind += [each for each in objects if (each.group, each.kind) == ("", "Service")]
        return any(each.namespace == within for each in of_kind)
    return any(each.namespace == within and fits(each) for each in of_kind)


def _concerns_namespaces(selector: ResourceSelector, objects: Sequence[HubObject]) -> bool:
    """Take a namespace by its name or labels, and what is inside one by that name if there is one.

    Without a name the labels of the namespace would have to be known: anything inside any counts.
    """
    fits = matcher(selector)
    if any(fits(each) for each in objects if (each.group, each.kind) == ("", "Namespace")):
        return True
    if selector.selection_scope is not SelectionScope.NAMESPACE_WITH_RESOURCES:
        return False
    insides = {each.namespace for each in objects if each.namespace}
    return any(not is_reserved_namespace(each) and selector.name in ("", each) for each in insides)

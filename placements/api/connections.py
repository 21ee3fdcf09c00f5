"""Connections of Kubernetes clusters: set, check, renew, remove; and the manifest that prepares a cluster."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.connection_input import ConnectionInput
from clusters.credentials import Connected
from clusters.drivers.base import KUBERNETES
from clusters.drivers.kubernetes.check import OTHER_CLUSTER, CheckResult
from clusters.models import MemberCluster
from clusters.operations.connection import (
    Kinds,
    check_connection,
    check_stored_connection,
    connected_cluster,
    connection_facts,
    new_member,
    parse_input,
    remove_connection,
    renew_credentials,
    set_connection,
)
from clusters.operations.edit import UnknownClusterError
from clusters.preparation import Preparation, preparation_documents
from placements.api.base import BaseViewSet, MayAdministerClusters, actor, query_params
from placements.api.filters import ClusterConnectionQuery, JoinQuery, PrepareQuery
from placements.api.parsers import has_body, parse_body
from placements.api.preconditions import etag, etag_response, expected_revision
from placements.api.problems import CheckStepSerializer
from placements.api.renderers import YamlRenderer
from placements.api.schema import documented, operation
from placements.api.serializers import (
    ANY_OBJECT,
    CamelCaseSerializer,
    Text,
    names,
)
from placements.services.filters import kinds_for, kinds_on

_LARGEST_PEM = 256 * 1024


def _entered(**options: Any) -> Text:
    return Text(
        required=False,
        allow_blank=True,
        max_length=_LARGEST_PEM,
        trim_whitespace=False,
        **options,
    )


class CredentialSerializer(CamelCaseSerializer):
    """What may be shown of the credentials of a connection."""

    kind = serializers.ChoiceField(["token", "certificate"])
    subject = serializers.CharField(
        help_text="Of the certificate or the token, read without verification."
    )
    fingerprint = serializers.CharField(
        help_text="Recognizes the secret; it cannot be computed back."
    )
    expires_at = serializers.DateTimeField(allow_null=True)
    revision = serializers.IntegerField()
    set_by = serializers.CharField()
    set_at = serializers.DateTimeField()
    rejected_since = serializers.DateTimeField(
        allow_null=True, help_text="The first of the 401 answers."
    )
    blocked_until = serializers.DateTimeField(
        allow_null=True, help_text="No call is made until then."
    )
    renew_at = serializers.DateTimeField(allow_null=True)
    renewal_error = serializers.CharField(allow_blank=True)
    notice = serializers.CharField(allow_blank=True, help_text="About the expiry.")


class ConnectionSerializer(CamelCaseSerializer):
    """The public part of a connection."""

    server = serializers.CharField(required=False)
    ca = serializers.CharField(required=False)
    ca_fingerprints = names(help_text="SHA-256.")
    tls_server_name = serializers.CharField(required=False)
    proxy = serializers.CharField(required=False)
    in_cluster = serializers.BooleanField(required=False)
    credential = CredentialSerializer(allow_null=True)
    warning = serializers.CharField(allow_blank=True)
    steps = CheckStepSerializer(
        many=True, required=False, help_text="Of the check before saving."
    )

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "insecureTLS": serializers.BooleanField()}


class ConnectionCheckSerializer(CamelCaseSerializer):
    """The check of a connection."""

    passed = serializers.BooleanField(
        source="is_passed", help_text="Apart from what is optional."
    )
    steps = CheckStepSerializer(many=True)


class ConnectionInputSerializer(CamelCaseSerializer):
    """A kubeconfig, or separate fields; an empty secret keeps the stored one while nothing else changes."""

    kubeconfig = _entered(write_only=True, help_text="The text of a kubeconfig.")
    server = _entered(help_text="https://host[:port][/path]")
    ca = _entered(
        help_text="CA certificates in PEM format; by default those of the system."
    )
    token = _entered(write_only=True)
    certificate = _entered(
        write_only=True, help_text="A client certificate in PEM format."
    )
    key = _entered(
        write_only=True, help_text="The key of the certificate in PEM format."
    )
    tls_server_name = _entered(
        help_text="The name in the certificate of the server, if it is another."
    )
    proxy = _entered(help_text="One of FLEETUI_MEMBER_PROXIES.")
    in_cluster = serializers.BooleanField(
        required=False, help_text="Use the account of the console's pod."
    )

    def get_fields(self) -> dict[str, Any]:
        return {
            **super().get_fields(),
            # Not attributes: "context" is one of every serializer.
            "context": _entered(
                help_text="The context of the kubeconfig; required if it has several."
            ),
            "insecureTLS": serializers.BooleanField(required=False),
        }


class MemberConnectionInputSerializer(ConnectionInputSerializer):
    """The same, with the labels and the taints of a cluster that joins."""

    labels = serializers.DictField(
        child=serializers.CharField(allow_blank=True), required=False, default=dict
    )
    taints = serializers.ListField(
        child=serializers.DictField(), required=False, default=list
    )


def connection_fields(body: Mapping[str, Any]) -> ConnectionInput:
    """Return what was entered about a connection, without empty fields."""
    names = {"tls_server_name": "tlsServerName", "in_cluster": "inCluster"}
    fields = {
        names.get(key, key): value
        for key, value in body.items()
        if value not in ("", False)
    }
    return ConnectionInput(
        fields.pop("kubeconfig", ""), fields.pop("context", ""), fields
    )


def connection_document(
    owner: Connected, result: CheckResult | None = None
) -> dict[str, Any]:
    """Return the public part of a connection, with the steps of its check before saving."""
    facts = connection_facts(owner, now=datetime.now(UTC))
    if result:
        facts["steps"] = CheckStepSerializer(result.steps, many=True).data
    return facts


class ConnectionViewSet(BaseViewSet):
    model = MemberCluster
    not_found = UnknownClusterError
    permission_classes = (MayAdministerClusters,)

    def get_renderers(self) -> Any:
        return (
            [YamlRenderer(), JSONRenderer()]
            if self.action == "prepare"
            else super().get_renderers()
        )

    def _facts(
        self,
        request: Request,
        name: str,
        result: CheckResult | None = None,
    ) -> Response:
        row = connected_cluster(name)
        facts = connection_document(row, result)
        return etag_response(request, facts, etag(row.revision, facts["credential"]))

    @operation(
        "get_cluster_connection",
        ConnectionSerializer,
        path="connection",
        has_tag=True,
        problems=(409,),
    )
    def connection(self, request: Request, name: str) -> Response:
        """Get the connection of a cluster, without its secret."""
        return self._facts(request, name)

    @documented(
        "put_cluster_connection",
        ConnectionSerializer,
        body=MemberConnectionInputSerializer,
        query=ClusterConnectionQuery,
        is_edit=True,
        has_tag=True,
        problems=(409,),
    )
    @connection.mapping.put
    def put_connection(self, request: Request, name: str) -> Response:
        """Check the connection of a cluster and set it; its observation starts immediately.

        With `joins` the cluster is added to the fleet, with the labels and taints of the body.
        """
        params = query_params(request, ClusterConnectionQuery)
        confirm = params.get("confirm")
        joins = params["joins"] == "true"
        body = parse_body(request, MemberConnectionInputSerializer)
        labels = body.pop("labels")
        taints = body.pop("taints")
        saved = set_connection(
            name,
            connection_fields(body),
            **actor(request),
            kinds=_kinds(name, labels, taints, joins=joins),
            confirmed=bool(confirm),
            other_cluster=confirm == OTHER_CLUSTER,
            expected=expected_revision(request),
            joins=joins,
            labels=labels,
            taints=taints,
        )
        return self._facts(request, name, saved.result)

    @documented("delete_cluster_connection", None, status=204, is_edit=True)
    @connection.mapping.delete
    def delete_connection(self, request: Request, name: str) -> Response:
        """Remove the connection of a cluster with its credentials; the cluster stays in the fleet."""
        remove_connection(name, **actor(request), expected=expected_revision(request))
        return Response(status=204)

    @operation(
        "check_cluster_connection",
        ConnectionCheckSerializer,
        method="post",
        path="connection/check",
        body=MemberConnectionInputSerializer,
        query=JoinQuery,
    )
    def check(self, request: Request, name: str) -> Response:
        """Check the connection of a cluster, or the one in the body; nothing is saved."""
        joins = query_params(request, JoinQuery)["joins"] == "true"
        row: MemberCluster | None = None
        if not joins:
            row = self.get_object()
        found: CheckResult
        if joins or has_body(request):
            body = parse_body(request, MemberConnectionInputSerializer)
            kinds = _kinds(name, body.pop("labels"), body.pop("taints"), joins=joins)
            parsed = parse_input(
                connection_fields(body), cluster=row, now=datetime.now(UTC)
            )
            is_new = row is None or row.driver != KUBERNETES
            found = check_connection(parsed, name=name, kinds=kinds, is_new=is_new)
        else:
            found = check_stored_connection(name, kinds=kinds_on(name))
        return Response(ConnectionCheckSerializer(found).data)

    @operation(
        "renew_cluster_connection",
        ConnectionSerializer,
        method="post",
        path="connection/renew",
        has_tag=True,
        problems=(409,),
    )
    def renew(self, request: Request, name: str) -> Response:
        """Renew the token of the service account of a cluster now."""
        renew_credentials(name, **actor(request))
        return self._facts(request, name)

    @operation("prepare_cluster", ANY_OBJECT, query=PrepareQuery, problems=(422,))
    def prepare(self, request: Request, name: str) -> Response:
        """Get the manifest that prepares a cluster: a List for `kubectl apply`."""
        chosen = query_params(request, PrepareQuery)
        is_on = {key: value == "true" for key, value in chosen.items()}
        documents = preparation_documents(
            Preparation(
                pods=is_on["pods"],
                cluster_roles=is_on["clusterRoles"],
                definitions=is_on["definitions"],
                groups=tuple(chosen["group"]),
                recover=is_on["recover"],
                everything=is_on["everything"],
            )
        )
        return Response({"apiVersion": "v1", "kind": "List", "items": documents})


def _kinds(name: str, labels: Any, taints: Any, *, joins: bool) -> Kinds:
    """Return the kinds of what is on a cluster, or would be placed on one that joins."""
    if not joins:
        return kinds_on(name)
    return kinds_for(new_member(name, labels, taints))

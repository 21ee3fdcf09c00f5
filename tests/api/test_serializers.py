"""Names of fields are camelCase in JSON; the keys of maps are data and stay as they are."""

from rest_framework import serializers

from placements.api.serializers import CamelCaseSerializer, Labels


class PartSerializer(CamelCaseSerializer):
    max_skew = serializers.IntegerField()


class ExampleSerializer(CamelCaseSerializer):
    match_labels = Labels()
    at_once = serializers.IntegerField(source="limit")
    first_part = PartSerializer()
    all_parts = PartSerializer(many=True)
    part_count = serializers.SerializerMethodField()

    def get_part_count(self, row: dict[str, list[object]]) -> int:
        return len(row["all_parts"])


def test_fields_are_camel_case_and_keys_of_maps_are_kept() -> None:
    row = {
        "match_labels": {"node_pool": "a", "example.com/cost_center": "b"},
        "limit": 2,
        "first_part": {"max_skew": 1},
        "all_parts": [{"max_skew": 3}],
    }

    assert ExampleSerializer(row).data == {
        "matchLabels": {"node_pool": "a", "example.com/cost_center": "b"},
        "atOnce": 2,
        "firstPart": {"maxSkew": 1},
        "allParts": [{"maxSkew": 3}],
        "partCount": 1,
    }


def test_input_is_camel_case_and_keys_of_maps_are_kept() -> None:
    reader = ExampleSerializer(
        data={
            "matchLabels": {"node_pool": "a"},
            "atOnce": 2,
            "firstPart": {"maxSkew": 1},
            "allParts": [],
        }
    )

    assert reader.is_valid()
    assert reader.validated_data["match_labels"] == {"node_pool": "a"}
    assert (reader.validated_data["limit"], reader.validated_data["first_part"]) == (
        2,
        {"max_skew": 1},
    )
    assert not ExampleSerializer(data={"at_once": 2}).is_valid()

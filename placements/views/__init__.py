"""The pages about placements: functions that ask one question and render its answer."""

-- What is asked, without its ids: a row for each different request, which come some at once.
CREATE OR REPLACE TEMP TABLE asked (
    slot BIGINT, cell_number INTEGER, tier INTEGER, size_bytes INTEGER, estimated_input_tokens INTEGER,
    is_answered BOOLEAN, is_in_shard BOOLEAN
)

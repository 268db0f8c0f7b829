-- What shares its shards, by numbers: a tier's cells of one model, or each cell alone; earlier tiers first.
CREATE OR REPLACE TEMP TABLE groups AS
WITH asked_cells AS (
    SELECT DISTINCT
        asked.tier, asked.cell_number, cells.provider, cells.endpoint, cells.request_model, cells.mode,
        CASE WHEN $per_cell THEN cells.cell_id END AS own
    FROM asked JOIN cells ON cells.number = asked.cell_number
), firsts AS (
    SELECT
        tier, cell_number,
        min(cell_number) OVER (PARTITION BY tier, provider, endpoint, request_model, mode, own) AS first_cell
    FROM asked_cells
)
SELECT tier, cell_number, dense_rank() OVER (ORDER BY tier, first_cell) AS group_number FROM firsts

-- The registry of batches as pairwiseLLM has it; paths that this copy lacks are missing.
SELECT
  segment_index, provider, model, batch_id, NULL AS batch_input_path, NULL AS batch_output_path, csv_path,
  NULL AS pairs_path, 'TRUE' AS done
FROM jobs
ORDER BY segment_index

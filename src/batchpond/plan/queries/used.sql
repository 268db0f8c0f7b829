-- What the answers that a study has, in any version, used where the same text of a template was asked in the same way:
-- simulated ones say what a simulator's will use, and no other. Of templates by their text, so that a new version
-- begins with what the last one saw.
WITH ways AS (
  SELECT DISTINCT stage, template_id, template_hash, provider, request_model, thinking
  FROM plan WHERE study = $study AND study_version = $version
), asked AS (
  SELECT DISTINCT ways.stage, ways.template_id, ways.provider, ways.request_model, ways.thinking, plan.request_id
  FROM plan
  JOIN ways ON ways.template_hash = plan.template_hash AND ways.provider = plan.provider
    AND ways.request_model = plan.request_model AND ways.thinking = plan.thinking
  WHERE plan.study = $study
), seen AS (
  SELECT asked.* EXCLUDE (request_id), requests.estimated_input_tokens, responses.input_tokens,
         coalesce(responses.cached_tokens, 0) AS cached_tokens, responses.output_tokens
  FROM asked
  JOIN requests ON requests.request_id = asked.request_id
  JOIN responses ON responses.request_id = asked.request_id
  WHERE responses.status = 'succeeded' AND responses.match = 'matched'
    AND responses.input_tokens > 0 AND responses.output_tokens IS NOT NULL
    AND (responses.origin = 'simulated') = list_contains($simulated, asked.provider)
), counted AS (
  SELECT stage, template_id, provider, request_model, thinking, count(*) AS n,
         sum(input_tokens) / sum(greatest(estimated_input_tokens, 1)) AS input_share,
         sum(cached_tokens) / sum(input_tokens) AS cached_share,
         avg(output_tokens) AS output_tokens, coalesce(stddev_samp(output_tokens), 0) AS output_sd
  FROM seen GROUP BY ALL
)
SELECT stage, template_id, provider, request_model, thinking, n, input_share, cached_share, output_tokens, output_sd
FROM counted
WHERE n >= $least

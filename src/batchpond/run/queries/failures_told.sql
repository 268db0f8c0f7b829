-- How many requests of each study failed, by provider and class, with the code and message that most have.
WITH {failed}, planned AS (
  SELECT DISTINCT study, request_id, provider FROM plan WHERE list_contains($versions, study_version)
), counted AS (
  SELECT study, provider, error_class, said.code AS code, said.message AS message, count(*) AS n
  FROM (FROM failed WHERE request_id NOT IN (
    SELECT request_id FROM shard_requests WHERE list_contains($pending, shard_id)
  )) AS failed ANTI JOIN (FROM responses WHERE match = 'matched' AND status = 'succeeded') AS answered USING (request_id)
  JOIN planned USING (request_id) GROUP BY ALL
)
SELECT study, provider, error_class, first(code ORDER BY n DESC, code, message),
       first(message ORDER BY n DESC, code, message), CAST(sum(n) AS BIGINT)
FROM counted GROUP BY study, provider, error_class ORDER BY sum(n) DESC, study, provider, error_class

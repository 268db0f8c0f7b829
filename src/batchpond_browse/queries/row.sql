-- All that there is of one planned judgment, but for the words of the answer; with what it showed, in order.
SELECT * EXCLUDE (text, thoughts, refusal, error_message), (
  SELECT list({{'sha256': sha256, 'media_type': media_type, 'name': 'Shown ' || place, 'size_bytes': size_bytes}} ORDER BY place)
  FROM (
    SELECT unnest(regexp_extract_all(body, '\\/blob\\/([0-9a-f]+)', 1)) AS sha256, generate_subscripts(
      regexp_extract_all(body, '\\/blob\\/([0-9a-f]+)', 1), 1) AS place
    FROM requests WHERE requests.request_id = results.request_id
  ) AS shown JOIN blobs USING (sha256)
) AS pictures
FROM results WHERE study = $study AND slot = $slot

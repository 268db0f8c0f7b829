-- All that there is of one planned judgment, but for the words of the answer; with the pictures that it showed, in order,
-- as far as a page can hold them.
SELECT * EXCLUDE (text, thoughts, refusal, error_message), (
  SELECT list('data:' || media_type || ';base64,' || to_base64(content) ORDER BY place)
  FROM (
    SELECT unnest(regexp_extract_all(body, '\\/blob\\/([0-9a-f]+)', 1)) AS sha256, generate_subscripts(
      regexp_extract_all(body, '\\/blob\\/([0-9a-f]+)', 1), 1) AS place
    FROM requests WHERE requests.request_id = results.request_id
  ) AS shown JOIN blobs USING (sha256)
  WHERE media_type LIKE 'image/%' AND size_bytes <= 3000000
) AS pictures
FROM results WHERE study = $study AND slot = $slot

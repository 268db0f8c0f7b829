-- What a study's file says for its report, as its newest version was planned with, when its answers came, and how both
-- are cited. TeX's own characters are taken out, or marked, where BibTeX reads them.
WITH told AS (
  SELECT
    {study} AS study,
    coalesce(trim(regexp_replace(json_extract_string(words, '$.title'), '\s+', ' ', 'g')), {study}) AS title,
    json_extract_string(words, '$.authors[*]') AS authors,
    [trim(regexp_replace(one, '\s+', ' ', 'g')) FOR one IN
      regexp_split_to_array(trim(json_extract_string(words, '$.notes'), chr(10) || ' '), '\n\s*\n')] AS notes,
    strftime(ended_at, '%Y') AS year,
    'answers up to ' || ltrim(strftime(ended_at, '%d %B %Y'), '0') AS day,
    study_version
  FROM (SELECT max(ended_at) AT TIME ZONE 'UTC' AS ended_at FROM report_timeline WHERE study = {study}) AS answers
  LEFT JOIN (
    SELECT study_version, detail AS words
    FROM events
    JOIN studies_current USING (study, study_version)
    WHERE study = {study} AND kind = 'planned'
    ORDER BY ord DESC
    LIMIT 1
  ) AS planned ON TRUE
),
marked AS (
  SELECT
    *,
    [regexp_replace(translate(one, '\{{}}~^', ''), '([&%#_$])', '\\\1', 'g') FOR one IN [study, title]] AS tex,
    [regexp_replace(translate(one, '\{{}}~^', ''), '([&%#_$])', '\\\1', 'g') FOR one IN authors] AS tex_authors
  FROM told
)
SELECT
  study,
  title,
  concat_ws(chr(10) || chr(10), nullif(concat_ws(' · ', nullif(array_to_string(authors, ', '), ''), day), ''),
    array_to_string(notes, chr(10) || chr(10))) AS head,
  concat_ws('. ', nullif(array_to_string(authors, ', '), ''), title || coalesce(' (' || year || ')', '')) AS cited,
  coalesce(', version ' || study_version, '') AS of_version,
  concat_ws('-', nullif(trim(regexp_replace(study, '[^A-Za-z0-9]+', '-', 'g'), '-'), ''), coalesce(left(study_version, 8), 'report'))
    AS cite_key,
  tex[1] AS tex_study,
  tex[2] AS tex_title,
  coalesce(chr(10) || '  author = {{' || nullif(array_to_string(tex_authors, ' and '), '') || '}},', '') AS tex_authors,
  coalesce(chr(10) || '  year = {{' || year || '}},', '') AS tex_year
FROM marked

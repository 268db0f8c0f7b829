-- What makes a row unusable by itself, or beside the names of others.
WITH named AS (
  SELECT item_first AS name FROM judgments_given WHERE item_first IS NOT NULL
  UNION SELECT item_second FROM judgments_given WHERE item_second IS NOT NULL
)
SELECT
  line_no,
  CASE
    WHEN coalesce(trim(item_first), '') = '' THEN 'has no item_first'
    WHEN task NOT IN ({tasks}) THEN 'has task ' || shown(task)
    WHEN task = 'listwise' AND (request_id IS NULL OR list_id IS NULL OR coalesce(whole(list_place), 0) < 1)
      THEN 'is a place of a list, but lacks list_id, list_place or request_id'
    WHEN purpose NOT IN ('start', 'gain', 'holdout', 'reverse', 'shared') AND NOT (
      provider = 'human' AND regexp_full_match(purpose, '(agreement|disagreement|flip|unread) [1-9][0-9]*')  -- a label's stratum
    ) THEN 'has purpose ' || shown(purpose)
    WHEN is_pair AND coalesce(trim(item_second), '') = '' THEN 'has no item_second'
    WHEN NOT is_pair AND item_second IS NOT NULL THEN 'has item_second, which ' || task || ' does not judge'
    WHEN item_first = item_second THEN 'judges ' || shown(item_first) || ' against itself'
    WHEN contains(concat(item_first, item_second), chr(0)) THEN 'holds a NUL in an id, at which many tools end a text'
    WHEN item_first <> nfc_normalize(item_first) AND nfc_normalize(item_first) IN (FROM named)
      THEN 'has ' || shown(item_first) || ', which stands in the file in another Unicode form'
    WHEN item_second <> nfc_normalize(item_second) AND nfc_normalize(item_second) IN (FROM named)
      THEN 'has ' || shown(item_second) || ', which stands in the file in another Unicode form'
    WHEN word IS NULL OR (word = 'decided' AND NOT is_pair AND coalesce(label, number(score)) IS NULL) THEN 'has no verdict'
    WHEN word NOT IN ({words}) AND CASE WHEN is_pair THEN word NOT IN ({kinds}) ELSE word NOT IN ('true', 'false', 'decided') END
      THEN 'has verdict ' || shown(word)
    WHEN outcome NOT IN (CASE WHEN verdict IN ({kinds}) THEN 'tie' ELSE verdict END, 'decided') THEN 'has a verdict and outcome ' || shown(outcome)
    WHEN direction NOT IN ('forward', 'reverse') THEN 'has direction ' || shown(direction)
    WHEN origin NOT IN ({origins}) THEN 'has origin ' || shown(origin)
    WHEN is_no_count(turn_no) THEN 'has turn_no ' || shown(turn_no) || ', not a whole number'
    WHEN is_no_amount(score) THEN 'has score ' || shown(score) || ', not a number'
    WHEN NOT regexp_full_match(number(repeat_no), '0*[1-9][0-9]{{0,8}}(\.0+)?')
      THEN 'has repeat_no ' || shown(repeat_no) || ', not a whole number from 1'
    WHEN is_no_amount(confidence) OR NOT amount(confidence) BETWEEN 0 AND 1
      THEN 'has confidence ' || shown(confidence) || ', not a number from 0 to 1'
    WHEN is_no_count(input_tokens) THEN 'has input_tokens ' || shown(input_tokens) || ', not a whole number'
    WHEN is_no_count(output_tokens) THEN 'has output_tokens ' || shown(output_tokens) || ', not a whole number'
    WHEN is_no_amount(points) THEN 'has points ' || shown(points) || ', not a number'
    WHEN is_no_count(n_chars_first) THEN 'has n_chars_first ' || shown(n_chars_first) || ', not a whole number'
    WHEN is_no_count(n_chars_second) THEN 'has n_chars_second ' || shown(n_chars_second) || ', not a whole number'
    WHEN is_no_amount(cost_usd) OR amount(cost_usd) < 0
      THEN 'has cost_usd ' || shown(cost_usd) || ', not an amount'
  END AS problem
FROM judgments_given

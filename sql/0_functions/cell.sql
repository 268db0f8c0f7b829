-- question: Which cell is a row of, and which judge said it, as one value?
-- macros: cell(t), judge(t), judge_a(t), judge_b(t), judge_of_a(t), judge_text(t), name_of_b(t), t being the view or
--   table whose rows they are, or a value with such columns; cell_of(template_id, rubric_id, provider, request_model,
--   thinking), judge_of(provider, request_model, thinking), juror(template_id, judge, word, weight); as_judge_a(judge),
--   as_judge_b(judge), best_judge(judge), cheapest_judge(judge), judge_name(judge); side(value, t), side_a(side),
--   side_b(side). A view spells the columns of a value again with `cell.*`.
-- estimators:
--   - cell: what a cell is within its study
--   - judge: the same without template and rubric
--   - judge_a, judge_b: the two judges of a view that compares two
--   - judge_of_a: the first of them under plain names
--   - cell_of, judge_of: a cell, a judge, of single values
--   - juror: one of the list of judges of a jury
--   - as_judge_a, as_judge_b, best_judge, cheapest_judge: a judge under the names of judge a or b, and of metric_jury
--   - judge_text: a judge as a text, its parts apart by the character 31
--   - judge_name, name_of_b: a judge, and judge b, for people to read
--   - side: what a judge holds and who it is, as such a text
--   - side_a, side_b: the parts of that, as in report_disagreements
-- reference: own definition; no other file lists these columns but those that take them from the lake's tables.
-- nulls: a cell and a judge are never NULL; two that lack the same columns, and are equal in the others, are equal.

CREATE OR REPLACE MACRO cell(t) AS
  {'template_id': t.template_id, 'rubric_id': t.rubric_id, 'provider': t.provider, 'request_model': t.request_model,
   'thinking': t.thinking};

CREATE OR REPLACE MACRO judge(t) AS
  {'provider': t.provider, 'request_model': t.request_model, 'thinking': t.thinking};

CREATE OR REPLACE MACRO judge_a(t) AS
  {'provider_a': t.provider_a, 'request_model_a': t.request_model_a, 'thinking_a': t.thinking_a};

CREATE OR REPLACE MACRO judge_b(t) AS
  {'provider_b': t.provider_b, 'request_model_b': t.request_model_b, 'thinking_b': t.thinking_b};

CREATE OR REPLACE MACRO cell_of(template_id, rubric_id, provider, request_model, thinking) AS
  {'template_id': template_id, 'rubric_id': rubric_id, 'provider': provider, 'request_model': request_model,
   'thinking': thinking};

CREATE OR REPLACE MACRO judge_of(provider, request_model, thinking) AS
  {'provider': provider, 'request_model': request_model, 'thinking': thinking};

CREATE OR REPLACE MACRO juror(template_id, judge, word, weight) AS
  {'template_id': template_id, 'provider': judge.provider, 'request_model': judge.request_model,
   'thinking': judge.thinking, 'word': word, 'weight': weight};

CREATE OR REPLACE MACRO as_judge_a(judge) AS
  {'provider_a': judge.provider, 'request_model_a': judge.request_model, 'thinking_a': judge.thinking};

CREATE OR REPLACE MACRO as_judge_b(judge) AS
  {'provider_b': judge.provider, 'request_model_b': judge.request_model, 'thinking_b': judge.thinking};

CREATE OR REPLACE MACRO best_judge(judge) AS
  {'best_provider': judge.provider, 'best_request_model': judge.request_model, 'best_thinking': judge.thinking};

CREATE OR REPLACE MACRO cheapest_judge(judge) AS
  {'cheapest_provider': judge.provider, 'cheapest_request_model': judge.request_model,
   'cheapest_thinking': judge.thinking};

CREATE OR REPLACE MACRO judge_of_a(t) AS
  {'provider': t.provider_a, 'request_model': t.request_model_a, 'thinking': t.thinking_a};

CREATE OR REPLACE MACRO judge_text(t) AS
  t.provider || chr(31) || t.request_model || chr(31) || coalesce(t.thinking, '');

CREATE OR REPLACE MACRO judge_name(judge) AS
  concat(judge.provider, '/', judge.request_model, ' at thinking ', judge.thinking);

CREATE OR REPLACE MACRO name_of_b(t) AS
  t.provider_b || ' ' || t.request_model_b || ' ' || coalesce(t.thinking_b, '');

CREATE OR REPLACE MACRO side(value, t) AS
  concat_ws(chr(31), value, t.template_id, t.provider, t.request_model, t.thinking);

CREATE OR REPLACE MACRO side_a(side) AS
  {'value_a': split_part(side, chr(31), 1), 'template_a': split_part(side, chr(31), 2),
   'provider_a': split_part(side, chr(31), 3), 'model_a': split_part(side, chr(31), 4),
   'thinking_a': split_part(side, chr(31), 5)};

CREATE OR REPLACE MACRO side_b(side) AS
  {'value_b': split_part(side, chr(31), 1), 'template_b': split_part(side, chr(31), 2),
   'provider_b': split_part(side, chr(31), 3), 'model_b': split_part(side, chr(31), 4),
   'thinking_b': split_part(side, chr(31), 5)};

-- question: Which cell is a row of, which judge gave it, and which two judges does it compare, as one value?
-- macros: cell(t), judge(t), judge_pair(t), t being the name of the view or table whose rows they are; a view spells
--   the columns again with `cell.*`
-- estimators:
--   - cell: what a cell is within its study
--   - judge: the same without template and rubric
--   - judge_pair: judges a and b
-- reference: own definition; nowhere else in these files are the columns of a cell listed but where they come from.
-- nulls: no value is NULL; two whose columns are NULL at the same places are equal.

CREATE OR REPLACE MACRO cell(t) AS
  {'template_id': t.template_id, 'rubric_id': t.rubric_id, 'provider': t.provider, 'request_model': t.request_model,
   'thinking': t.thinking};

CREATE OR REPLACE MACRO judge(t) AS
  {'provider': t.provider, 'request_model': t.request_model, 'thinking': t.thinking};

CREATE OR REPLACE MACRO judge_pair(t) AS
  {'provider_a': t.provider_a, 'request_model_a': t.request_model_a, 'thinking_a': t.thinking_a,
   'provider_b': t.provider_b, 'request_model_b': t.request_model_b, 'thinking_b': t.thinking_b};

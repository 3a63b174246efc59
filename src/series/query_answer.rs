//! Query answers: the JSON of Prometheus' HTTP API, parsed without copying its texts.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// The most labels of one series; Prometheus limits what it scrapes to far fewer.
const MAX_LABELS: usize = 128;

/// An answer to a query.
#[derive(Debug, Deserialize)]
pub(crate) struct QueryAnswer<'a, T> {
    /// `success` or `error`.
    #[serde(borrow)]
    pub(crate) status: AnswerText<'a>,
    /// The data of a success.
    pub(crate) data: Option<T>,
    /// The error.
    #[serde(borrow, default)]
    pub(crate) error: Option<AnswerText<'a>>,
    /// VictoriaMetrics: whether a part of the storage did not answer.
    #[serde(default, rename = "isPartial")]
    pub(crate) is_partial: bool,
    /// Prometheus and Thanos: what remote storage or a store did not answer.
    #[serde(borrow, default)]
    pub(crate) warnings: Option<Vec<AnswerText<'a>>>,
}

/// Series with samples.
#[derive(Debug, Deserialize)]
pub(crate) struct AnsweredMatrix<'a> {
    /// `matrix` for raw samples.
    #[serde(borrow, rename = "resultType")]
    pub(crate) result_type: AnswerText<'a>,
    /// The series.
    #[serde(borrow)]
    pub(crate) result: Vec<AnsweredSeries<'a>>,
}

/// A series and its samples.
#[derive(Debug, Deserialize)]
pub(crate) struct AnsweredSeries<'a> {
    /// Name and labels.
    #[serde(borrow)]
    pub(crate) metric: AnsweredLabels<'a>,
    /// Seconds since 1970, and the value as text.
    #[serde(borrow, default)]
    pub(crate) values: Vec<(f64, AnswerText<'a>)>,
}

/// A text that is borrowed from the answer, unless it has escapes.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AnswerText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The labels of a series in the order of the answer, `__name__` among them.
#[derive(Debug)]
pub(crate) struct AnsweredLabels<'a>(pub(crate) Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl AnsweredLabels<'_> {
    /// The value of a label; empty if the series has none, as in PromQL.
    pub(crate) fn find_label(&self, name: &str) -> &str {
        self.0.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
    }

    /// The name of the metric.
    pub(crate) fn metric_name(&self) -> &str {
        self.find_label("__name__")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AnsweredLabels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelVisitor;

        impl<'de> Visitor<'de> for LabelVisitor {
            type Value = AnsweredLabels<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut labels = Vec::with_capacity(map.size_hint().unwrap_or(16).min(MAX_LABELS));
                while let Some((name, value)) =
                    map.next_entry::<AnswerText<'de>, AnswerText<'de>>()?
                {
                    if labels.len() == MAX_LABELS {
                        return Err(serde::de::Error::custom("a series has more than 128 labels"));
                    }
                    labels.push((name.0, value.0));
                }
                Ok(AnsweredLabels(labels))
            }
        }

        deserializer.deserialize_map(LabelVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_parsed_whichever_server_wrote_it() {
        let texts = [
            // Prometheus, then VictoriaMetrics.
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"a\"b"},"values":[[1731400007,"1"],[1731400022.25,"+Inf"]]}]}}"#,
            r#"{"status":"success","isPartial":false,"data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"a\"b"},"values":[[1731400007,"1"],[1731400022.25,"+Inf"]]}]},"stats":{"seriesFetched":"1"}}"#,
        ];
        for text in texts {
            let answer: QueryAnswer<'_, AnsweredMatrix<'_>> = serde_json::from_str(text).unwrap();
            assert_eq!((&*answer.status.0, answer.is_partial), ("success", false));
            let matrix = answer.data.unwrap();
            assert_eq!(matrix.result_type.0, "matrix");
            let series = &matrix.result[0];
            assert_eq!(
                (series.metric.metric_name(), series.metric.find_label("job")),
                ("up", "a\"b")
            );
            assert!(matches!(series.metric.0[0].1, Cow::Borrowed(_)), "names are not copied");
            let values: Vec<_> = series.values.iter().map(|(at, it)| (*at, &*it.0)).collect();
            assert_eq!(values, [(1_731_400_007.0, "1"), (1_731_400_022.25, "+Inf")]);
        }
        let text = r#"{"status":"error","errorType":"execution","error":"too many samples"}"#;
        let answer: QueryAnswer<'_, AnsweredMatrix<'_>> = serde_json::from_str(text).unwrap();
        assert!(answer.data.is_none() && answer.error.unwrap().0.contains("too many"));
    }

    #[test]
    fn answer_of_another_form_is_an_error() {
        let labels: Vec<_> = (0..200).map(|number| format!("\"l{number}\":\"v\"")).collect();
        let many = format!("{{\"metric\":{{{}}}}}", labels.join(","));
        for text in [&*many, r#"{"metric":[]}"#, r#"{"metric":{"a":1}}"#, r#"{"values":[]}"#] {
            serde_json::from_str::<AnsweredSeries<'_>>(text).unwrap_err();
        }
    }
}

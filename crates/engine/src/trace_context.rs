//! Reads the trace context that applications put into a command's `comment`: a W3C `traceparent`, as the whole
//! comment or as its field of that name.

use crate::document::Element;
use crate::request_head::RequestHead;

/// See <https://www.w3.org/TR/trace-context/>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    /// The span of the sender.
    pub parent: [u8; 8],
    /// Whether the sender records this trace.
    pub sampled: bool,
}

impl TraceContext {
    /// Returns a request's trace context; `None` if there is none or the body is not the first section.
    #[must_use]
    pub fn of_head(head: &RequestHead<'_>) -> Option<Self> {
        let comment = head.fields().comment?;
        match comment.as_document() {
            Some(document) => {
                let is_it = |field: &Element<'_>| field.key == b"traceparent";
                Self::parse(document.elements().find(is_it)?.value.as_str()?)
            }
            None => Self::parse(comment.as_str()?),
        }
    }

    /// Parses `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`; later versions may append more.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = lower_hex(version)?;
        let [flags] = lower_hex(flags)?;
        let (trace, parent) = (lower_hex::<16>(trace)?, lower_hex::<8>(parent)?);
        let valid = version != 0xff && (version > 0 || parts.next().is_none()) && trace != [0; 16] && parent != [0; 8];
        valid.then_some(Self { trace, parent, sampled: flags & 1 == 1 })
    }
}

/// Accepts lower-case digits only, as the standard requires.
fn lower_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};

    use super::*;
    use crate::wire::op_msg;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parsed(comment: impl Into<Bson>) -> Option<TraceContext> {
        let body = doc! { "find": "c", "comment": comment.into(), "$db": "d" };
        let body = bson::raw::RawDocumentBuf::try_from(&body).unwrap();
        let mut writer = op_msg::MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(body.as_bytes()));
        TraceContext::of_head(&RequestHead::new(&writer.finish()))
    }

    #[test]
    fn a_comment_may_contain_a_trace_context() {
        let found = parsed(PARENT).unwrap();
        assert_eq!((found.trace[0], found.trace[15], found.parent[0], found.sampled), (0x0a, 0x9c, 0xb7, true));
        assert_eq!(parsed(doc! { "by": "shop", "traceparent": PARENT }), Some(found));
        assert!(!parsed(PARENT.replace("-01", "-00")).unwrap().sampled);
        assert_eq!(parsed(PARENT.replace("00-0a", "01-0a") + "-more"), Some(found));
        for wrong in [
            Bson::from("a comment"),
            Bson::from(7),
            Bson::from(doc! { "traceparent": 1 }),
            Bson::from(PARENT.to_uppercase()),
            Bson::from(PARENT.replace("00-0a", "ff-0a")),
            Bson::from(format!("{PARENT}-more")),
            Bson::from(format!("00-{}-b7ad6b7169203331-01", "0".repeat(32))),
            Bson::from("00-é-b7ad6b7169203331-01"),
            Bson::from(&PARENT[..54]),
        ] {
            assert_eq!(parsed(wrong.clone()), None, "{wrong}");
        }
    }
}

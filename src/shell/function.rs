//! JavaScript functions inside a command (`$where`, mapReduce): their source is kept as it is, so only their
//! end must be found.

use super::ShellError;
use super::regex::skip_pattern;
use super::scanner::{Scanner, is_name_part};
use super::string;

/// Goes behind the function that comes next: behind the brace that closes its body.
pub(super) fn skip(scanner: &mut Scanner<'_>) -> Result<(), ShellError> {
    let start = scanner.at();
    let mut open: usize = 0;
    // What stood before decides whether a slash divides or begins a regular expression.
    let mut after_value = false;
    loop {
        let before = scanner.at();
        scanner.skip_space()?;
        let Some(c) = scanner.peek_char() else {
            return Err(ShellError::new(start..start + "function".len(), "this function has no end").help("close its braces"));
        };
        match c {
            '"' | '\'' | '`' => {
                string::read(scanner)?;
                after_value = true;
                continue;
            }
            '/' if !after_value => {
                scanner.bump();
                skip_pattern(scanner)
                    .ok_or_else(|| ShellError::new(before..before + 1, "this regular expression has no closing /"))?;
                after_value = true;
                continue;
            }
            c if is_name_part(c) => {
                let word = scanner.take_while(is_name_part);
                after_value = !matches!(word, "return" | "typeof" | "case" | "in" | "of" | "void" | "delete" | "else");
                continue;
            }
            _ => {}
        }
        scanner.bump();
        match c {
            '{' | '(' | '[' => open += 1,
            '}' | ')' | ']' => {
                open = open.saturating_sub(1);
                if c == '}' && open == 0 {
                    return Ok(());
                }
            }
            _ => {}
        }
        after_value = matches!(c, ')' | ']');
    }
}

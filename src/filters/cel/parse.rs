//! Parses a text into a checked expression, by precedence.
//!
//! - A name that is neither a member, nor a loop's variable, nor a type is refused, and so is an unknown function.
//! - No expression is larger than [`NODES_MAX`] or deeper than [`DEPTH_MAX`], so evaluation may recurse.
//! - A pattern is a literal. It is compiled here, once, for a matcher that is linear in the text.
//!
//! ```text
//! expression = or ["?" or ":" expression]
//! or / and   = and *("||" and)  /  relation *("&&" relation)
//! relation   = sum *(("==" / "!=" / "<" / "<=" / ">" / ">=" / "in") sum)
//! sum        = product *(("+" / "-") product)
//! product    = unary *(("*" / "/" / "%") unary)
//! unary      = *("!" / "-") postfix
//! postfix    = primary *("." name ["(" … ")"] / "[" expression "]")
//! primary    = literal / name ["(" … ")"] / "(" expression ")" / "[" … "]" / "{" key ":" value … "}"
//! ```

use super::expr::{BinaryOperator, CelExpr, CelLiteral};
use super::names::read_time;
use super::token::{CelError, CelToken, tokens};
use std::vec::IntoIter;

/// Most nodes of one expression.
pub(super) const NODES_MAX: usize = 1000;
/// Deepest nesting of one expression, and of its brackets.
pub(super) const DEPTH_MAX: usize = 32;
/// Deepest nesting of loops.
pub(super) const LOOPS_MAX: usize = 2;
/// Most patterns of one expression.
pub(super) const PATTERNS_MAX: usize = 8;
/// Longest pattern, in bytes.
pub(super) const PATTERN_BYTES_MAX: usize = 512;

/// A checked expression, and the members that it needs.
pub(super) struct ParsedExpr {
    /// The expression.
    pub(super) expr: CelExpr,
    /// The members that it names; `None` if it uses the event as a whole.
    pub(super) wanted: Option<Vec<&'static str>>,
}

/// Parses an expression.
pub(super) fn parse(source: &str) -> Result<ParsedExpr, CelError> {
    let mut parser = CelParser {
        words: tokens(source)?.into_iter(),
        end: source.len(),
        scope: Vec::new(),
        members: Vec::new(),
        wholes: 0,
        nodes: 0,
        brackets: 0,
        patterns: 0,
    };
    let SubExpr { expr, .. } = parser.expression()?;
    if parser.peek().is_some() {
        return Err(parser.fault("an operator is expected here"));
    }
    Ok(ParsedExpr { expr, wanted: (parser.wholes == 0).then_some(parser.members) })
}

/// Reserved words, which cannot be names.
pub(super) const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub(super) const OPERAND: &str = "an operand is expected here";
const TOO_DEEP: &str = "the expression is nested too deeply";

/// The state of the parser.
pub(super) struct CelParser<'s> {
    words: IntoIter<(CelToken<'s>, usize)>,
    end: usize,
    /// The variables of the open loops, outermost first.
    pub(super) scope: Vec<&'s str>,
    /// The members named so far.
    pub(super) members: Vec<&'static str>,
    /// How often the event as a whole is used.
    pub(super) wholes: usize,
    nodes: usize,
    brackets: usize,
    pub(super) patterns: usize,
}

/// A node and its depth.
pub(super) struct SubExpr {
    pub(super) expr: CelExpr,
    pub(super) depth: usize,
}

impl<'s> CelParser<'s> {
    pub(super) fn expression(&mut self) -> Result<SubExpr, CelError> {
        self.brackets += 1;
        if self.brackets > DEPTH_MAX {
            return Err(self.fault(TOO_DEEP));
        }
        let condition = self.or()?;
        let whole = if self.eat("?") {
            let then = self.or()?;
            self.expect(":", "`:` is expected here")?;
            let otherwise = self.expression()?;
            let depth = condition.depth.max(then.depth).max(otherwise.depth);
            self.node(CelExpr::Choice(Box::new([condition.expr, then.expr, otherwise.expr])), depth)?
        } else {
            condition
        };
        self.brackets -= 1;
        Ok(whole)
    }

    fn or(&mut self) -> Result<SubExpr, CelError> {
        self.chain("||", CelExpr::Or, |parser| parser.chain("&&", CelExpr::And, Self::relation))
    }

    /// Operands joined by one operator, kept flat.
    fn chain(
        &mut self,
        sign: &'static str,
        join: fn(Vec<CelExpr>) -> CelExpr,
        operand: impl Fn(&mut Self) -> Result<SubExpr, CelError>,
    ) -> Result<SubExpr, CelError> {
        let first = operand(self)?;
        if self.peek() != Some(&CelToken::Sign(sign)) {
            return Ok(first);
        }
        let mut depth = first.depth;
        let mut operands = vec![first.expr];
        while self.eat(sign) {
            let next = operand(self)?;
            depth = depth.max(next.depth);
            operands.push(next.expr);
        }
        self.node(join(operands), depth)
    }

    fn relation(&mut self) -> Result<SubExpr, CelError> {
        const RELATIONS: [(&str, BinaryOperator); 6] = [
            ("==", BinaryOperator::Equal),
            ("!=", BinaryOperator::Unequal),
            ("<=", BinaryOperator::LessOrEqual),
            (">=", BinaryOperator::GreaterOrEqual),
            ("<", BinaryOperator::Less),
            (">", BinaryOperator::Greater),
        ];
        let mut left = self.sum()?;
        loop {
            let at = self.at();
            let operator = if self.peek() == Some(&CelToken::Name("in")) {
                self.words.next();
                BinaryOperator::In
            } else {
                match self.eat_one_of(&RELATIONS) {
                    Some(operator) => operator,
                    None => return Ok(left),
                }
            };
            let mut right = self.sum()?;
            if operator != BinaryOperator::In {
                read_time(&mut left.expr, &mut right.expr, at)?;
            }
            left = self.binary(operator, left, right)?;
        }
    }

    fn sum(&mut self) -> Result<SubExpr, CelError> {
        let mut left = self.product()?;
        while let Some(operator) = self.eat_one_of(&[("+", BinaryOperator::Add), ("-", BinaryOperator::Subtract)]) {
            let right = self.product()?;
            left = self.binary(operator, left, right)?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<SubExpr, CelError> {
        const PRODUCTS: [(&str, BinaryOperator); 3] =
            [("*", BinaryOperator::Multiply), ("/", BinaryOperator::Divide), ("%", BinaryOperator::Remainder)];
        let mut left = self.unary()?;
        while let Some(operator) = self.eat_one_of(&PRODUCTS) {
            let right = self.unary()?;
            left = self.binary(operator, left, right)?;
        }
        Ok(left)
    }

    fn binary(&mut self, operator: BinaryOperator, left: SubExpr, right: SubExpr) -> Result<SubExpr, CelError> {
        self.node(CelExpr::Binary(operator, Box::new([left.expr, right.expr])), left.depth.max(right.depth))
    }

    fn unary(&mut self) -> Result<SubExpr, CelError> {
        let (mut nots, mut minuses) = (0, 0);
        while self.eat("!") {
            nots += 1;
        }
        while nots == 0 && self.eat("-") {
            minuses += 1;
        }
        // The smallest integer has no positive counterpart, so its sign belongs to the literal.
        if minuses > 0 && self.peek() == Some(&CelToken::Int(i64::MIN.unsigned_abs())) {
            self.words.next();
            minuses -= 1;
            let least = self.node(CelExpr::Literal(CelLiteral::Int(i64::MIN)), 0)?;
            return self.wrap(least, minuses, CelExpr::Negate);
        }
        let operand = self.postfix()?;
        let operand = self.wrap(operand, nots, CelExpr::Not)?;
        self.wrap(operand, minuses, CelExpr::Negate)
    }

    fn wrap(&mut self, operand: SubExpr, times: usize, by: fn(Box<CelExpr>) -> CelExpr) -> Result<SubExpr, CelError> {
        (0..times).try_fold(operand, |inner, _| self.node(by(Box::new(inner.expr)), inner.depth))
    }

    fn postfix(&mut self) -> Result<SubExpr, CelError> {
        let mut of = self.primary()?;
        loop {
            if self.eat("[") {
                let key = self.expression()?;
                self.expect("]", "`]` is expected here")?;
                let depth = of.depth.max(key.depth);
                of = self.node(CelExpr::Index(Box::new(of.expr), Box::new(key.expr)), depth)?;
            } else if self.eat(".") {
                let at = self.at();
                let name = self.name(false)?;
                of = if self.eat("(") { self.method(of, name, at)? } else { self.field(of, name, at)? };
            } else {
                return Ok(of);
            }
        }
    }

    fn primary(&mut self) -> Result<SubExpr, CelError> {
        let at = self.at();
        let (word, _) = self.words.next().ok_or(CelError::new(at, OPERAND))?;
        let literal = match word {
            CelToken::Int(digits) => {
                CelLiteral::Int(i64::try_from(digits).map_err(|_| CelError::new(at, "the integer is out of range"))?)
            }
            CelToken::UInt(digits) => CelLiteral::UInt(digits),
            CelToken::Double(double) => CelLiteral::Double(double),
            CelToken::Text(text) => CelLiteral::Text(text.into()),
            CelToken::Name("true") => CelLiteral::Bool(true),
            CelToken::Name("false") => CelLiteral::Bool(false),
            CelToken::Name("null") => CelLiteral::Null,
            CelToken::Name(name) => return self.named(name, at),
            CelToken::Sign(sign) => return self.bracket(sign, at),
        };
        self.node(CelExpr::Literal(literal), 0)
    }

    fn bracket(&mut self, sign: &str, at: usize) -> Result<SubExpr, CelError> {
        match sign {
            "(" => {
                let inner = self.expression()?;
                self.expect(")", "`)` is expected here")?;
                Ok(inner)
            }
            "[" => {
                let items = self.operands("]")?;
                let depth = items.iter().map(|item| item.depth).max().unwrap_or(0);
                self.node(CelExpr::List(items.into_iter().map(|item| item.expr).collect()), depth)
            }
            "{" => self.map(),
            _ => Err(CelError::new(at, OPERAND)),
        }
    }

    fn map(&mut self) -> Result<SubExpr, CelError> {
        let (mut entries, mut depth) = (Vec::new(), 0);
        while !self.eat("}") {
            let key = self.expression()?;
            self.expect(":", "`:` is expected here")?;
            let value = self.expression()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push((key.expr, value.expr));
            if !self.eat(",") {
                self.expect("}", "`,` or `}` is expected here")?;
                break;
            }
        }
        self.node(CelExpr::Map(entries), depth)
    }

    /// Expressions up to the closing bracket.
    pub(super) fn operands(&mut self, close: &'static str) -> Result<Vec<SubExpr>, CelError> {
        let mut operands = Vec::new();
        while !self.eat(close) {
            operands.push(self.expression()?);
            if !self.eat(",") {
                self.expect(close, "`,` or a closing bracket is expected here")?;
                break;
            }
        }
        Ok(operands)
    }

    /// Counts a node that is `below` levels above its leaves.
    pub(super) fn node(&mut self, expr: CelExpr, below: usize) -> Result<SubExpr, CelError> {
        self.nodes += 1;
        let depth = below + 1;
        if self.nodes > NODES_MAX {
            return Err(self.fault("the expression has too many parts"));
        }
        if depth > DEPTH_MAX {
            return Err(self.fault(TOO_DEEP));
        }
        Ok(SubExpr { expr, depth })
    }

    pub(super) fn name(&mut self, is_variable: bool) -> Result<&'s str, CelError> {
        let at = self.at();
        match self.words.next() {
            Some((CelToken::Name(name), _)) if !is_variable || !RESERVED.contains(&name) => Ok(name),
            _ => Err(CelError::new(at, "a name is expected here")),
        }
    }

    fn eat_one_of(&mut self, signs: &[(&'static str, BinaryOperator)]) -> Option<BinaryOperator> {
        signs.iter().find(|(sign, _)| self.eat(sign)).map(|(_, operator)| *operator)
    }

    pub(super) fn eat(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(CelToken::Sign(next)) if *next == sign);
        if is_next {
            self.words.next();
        }
        is_next
    }

    pub(super) fn expect(&mut self, sign: &str, why: &'static str) -> Result<(), CelError> {
        if self.eat(sign) { Ok(()) } else { Err(self.fault(why)) }
    }

    fn peek(&self) -> Option<&CelToken<'s>> {
        self.words.as_slice().first().map(|(word, _)| word)
    }

    pub(super) fn at(&self) -> usize {
        self.words.as_slice().first().map_or(self.end, |(_, at)| *at)
    }

    fn fault(&self, why: &'static str) -> CelError {
        CelError::new(self.at(), why)
    }
}

//! Line charts as SVG: a few lines over a logarithmic axis.

use std::fmt::Write;

use crate::text::shorten;

/// A chart.
#[derive(Debug)]
pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<ChartLine>,
}

/// An axis.
#[derive(Debug)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
    /// Values labelled on the axis; its ends are the first and the last.
    pub ticks: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

/// A line of a chart.
#[derive(Debug)]
pub struct ChartLine {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 580.0;
/// Left, top, right and bottom of the area between the axes.
const AREA: [f64; 4] = [70.0, 40.0, WIDTH - 30.0, 345.0];
/// Where the names of the lines begin, each in a line of its own, and how high one is.
const NAMES: f64 = AREA[3] + 62.0;
const LINE_HEIGHT: f64 = 18.0;
/// The most characters of a name that fit.
const LONGEST_NAME: usize = 70;
/// A palette that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"];

impl Axis {
    /// From zero to at least `most`, in about five round steps.
    pub fn linear(label: &str, most: f64) -> Self {
        let rough = most / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let ticks = (0..=(most / step).ceil() as u32).map(|n| f64::from(n) * step);
        let ticks = ticks.map(|value| (value, number(value))).collect();
        Self { label: label.to_owned(), scale: Scale::Linear, ticks }
    }

    /// With a tick at each of these values, in ascending order.
    pub fn logarithmic(label: &str, ticks: Vec<(f64, String)>) -> Self {
        Self { label: label.to_owned(), scale: Scale::Logarithmic, ticks }
    }

    /// The position of a value on the axis, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let on = |value: f64| if self.scale == Scale::Linear { value } else { value.log10() };
        let end = |tick: Option<&(f64, String)>| on(tick.map_or(1.0, |tick| tick.0));
        let (least, most) = (end(self.ticks.first()), end(self.ticks.last()));
        ((on(value) - least) / (most - least)).clamp(0.0, 1.0)
    }
}

/// 25000 as "25,000".
pub fn number(value: f64) -> String {
    if value < 1000.0 {
        return format!("{}", (value * 100.0).round() / 100.0);
    }
    let digits = format!("{value:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

impl Plot {
    /// Returns an `svg` element. The classes `ground` and `grid`, and its texts, can have other colours in a page.
    pub fn svg(&self) -> String {
        let height = NAMES + LINE_HEIGHT * self.lines.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut out, AREA[0], 14.0, "start", &self.title);
        self.axes(&mut out);
        for (at, line) in self.lines.iter().enumerate() {
            let colour = COLOURS.get(at % COLOURS.len()).copied().unwrap_or_default();
            self.line(&mut out, line, colour, at as f64);
        }
        out + "</svg>\n"
    }

    fn x(&self, value: f64) -> f64 {
        AREA[0] + self.x.share(value) * (AREA[2] - AREA[0])
    }

    fn y(&self, value: f64) -> f64 {
        AREA[3] - self.y.share(value) * (AREA[3] - AREA[1])
    }

    fn axes(&self, out: &mut String) {
        for (value, name) in &self.x.ticks {
            let x = self.x(*value);
            grid(out, [x, AREA[1], x, AREA[3]]);
            text(out, x, AREA[3] + 18.0, "middle", name);
        }
        for (value, name) in &self.y.ticks {
            let y = self.y(*value);
            grid(out, [AREA[0], y, AREA[2], y]);
            text(out, AREA[0] - 8.0, y + 4.0, "end", name);
        }
        text(out, f64::midpoint(AREA[0], AREA[2]), AREA[3] + 40.0, "middle", &self.x.label);
        text(out, 8.0, AREA[1] - 10.0, "start", &self.y.label);
    }

    fn line(&self, out: &mut String, line: &ChartLine, colour: &str, at: f64) {
        let points: Vec<String> =
            line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.x(*x), self.y(*y))).collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
        let (x, y) = (AREA[0], NAMES + LINE_HEIGHT * at);
        let _ = writeln!(out, "<path d=\"M{x} {y}h18\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        let mut name = line.name.clone();
        shorten(&mut name, LONGEST_NAME);
        text(out, x + 24.0, y + 4.0, "start", &name);
    }
}

fn grid(out: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(out, "<path class=\"grid\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>");
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

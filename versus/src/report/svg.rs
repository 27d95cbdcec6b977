//! Plots as inline SVG: points and lines on axes, and bars. Colours are those of the page, so that they follow its theme.

use maud::{Markup, html};

/// Size of a plot; the page scales it.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 250.0;
/// Space for the labels of the axes.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// Number of colours and markers. Further series repeat them.
pub(super) const STYLES: usize = 10;

/// Points of one server. `style` chooses its colour and marker.
#[derive(Debug)]
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    pub(super) style: usize,
    /// Small points.
    pub(super) cloud: Vec<(f64, f64)>,
    /// Large markers, joined by a line if there are several, each with a label.
    pub(super) points: Vec<(f64, f64, String)>,
}

#[derive(Debug)]
pub(super) struct Plot<'a> {
    pub(super) id: String,
    pub(super) title: &'a str,
    pub(super) x: String,
    pub(super) y: String,
    /// Names of the places 0, 1, 2 … on the horizontal axis, in place of a logarithmic scale.
    pub(super) places: Option<&'a [&'a str]>,
    pub(super) series: Vec<Series<'a>>,
}

/// A logarithmic scale between two powers or simple multiples of ten.
#[derive(Clone, Copy, Debug)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high == 0.0 {
            return Self { low: 1.0, high: 10.0 };
        }
        // At least a factor of two, so that noise does not fill the plot.
        let (mut low, mut high) = (low / 1.12, high * 1.12);
        if high / low < 2.5 {
            let middle = (low * high).sqrt();
            (low, high) = (middle / 1.6, middle * 1.6);
        }
        Self { low, high }
    }

    fn place(self, value: f64) -> f64 {
        (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
    }

    /// Returns round numbers in the range, at most six or so.
    fn ticks(self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = match decades {
            d if d > 4.0 => &[1.0],
            d if d > 1.6 => &[1.0, 3.0],
            d if d > 0.7 => &[1.0, 2.0, 5.0],
            _ => &[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let ticks: Vec<f64> = all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        let every = ticks.len().div_ceil(7).max(1);
        ticks.into_iter().step_by(every).collect()
    }
}

/// Writes a number with three digits that count: `1.23 k`.
pub(super) fn number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// A marker: each style has a shape of its own, for print and for eyes that see few colours.
pub(super) fn marker(style: usize, x: f64, y: f64, r: f64) -> Markup {
    let class = format!("m s{}", style % STYLES);
    let points = |corners: &[(f64, f64)]| {
        corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * r, y + dy * r)).collect::<Vec<_>>().join(" ")
    };
    match style % 5 {
        0 => html! { circle class=(class) cx=(f(x)) cy=(f(y)) r=(f(r)) {} },
        1 => {
            html! { rect class=(class) x=(f(x - r * 0.9)) y=(f(y - r * 0.9)) width=(f(r * 1.8)) height=(f(r * 1.8)) {} }
        }
        2 => html! { polygon class=(class) points=(points(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)])) {} },
        3 => html! { polygon class=(class) points=(points(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)])) {} },
        _ => html! { polygon class=(class) points=(points(&[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)])) {} },
    }
}

fn f(value: f64) -> String {
    format!("{value:.1}")
}

impl Plot<'_> {
    pub(super) fn draw(&self) -> Markup {
        let each =
            || self.series.iter().flat_map(|s| s.cloud.iter().copied().chain(s.points.iter().map(|p| (p.0, p.1))));
        let x_scale = Scale::around(each().map(|point| point.0));
        let y_scale = Scale::around(each().map(|point| point.1));
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let y_of = |y: f64| TOP + height * (1.0 - y_scale.place(y));
        let x_of = |x: f64| match self.places {
            Some(places) => LEFT + width * (x + 0.5) / places.len().max(1) as f64,
            None => LEFT + width * x_scale.place(x),
        };
        let x_ticks: Vec<(f64, String)> = match self.places {
            Some(places) => places.iter().enumerate().map(|(n, name)| (n as f64, (*name).to_owned())).collect(),
            None => x_scale.ticks().into_iter().map(|tick| (tick, number(tick))).collect(),
        };
        let title = format!("{}-title", self.id);
        html! {
            svg id=(self.id) role="img" aria-labelledby=(title) viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
                title id=(title) { (self.title) }
                @for tick in y_scale.ticks() {
                    line class="grid" x1=(f(LEFT)) x2=(f(WIDTH - RIGHT)) y1=(f(y_of(tick))) y2=(f(y_of(tick))) {}
                    text class="tick" text-anchor="end" x=(f(LEFT - 5.0)) y=(f(y_of(tick) + 3.5)) { (number(tick)) }
                }
                @for (tick, label) in &x_ticks {
                    line class="grid" x1=(f(x_of(*tick))) x2=(f(x_of(*tick))) y1=(f(TOP)) y2=(f(TOP + height)) {}
                    text class="tick" text-anchor="middle" x=(f(x_of(*tick))) y=(f(TOP + height + 14.0)) { (label) }
                }
                text class="axis" text-anchor="middle" x=(f(LEFT + width / 2.0)) y=(f(HEIGHT - 6.0)) { (self.x) }
                text class="axis" text-anchor="middle" transform=(format!("translate(11 {:.1}) rotate(-90)", TOP + height / 2.0)) { (self.y) }
                @for series in &self.series {
                    g data-series=(series.name) {
                        @for (x, y) in series.cloud.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
                            circle class=(format!("cloud s{}", series.style % STYLES)) cx=(f(x_of(*x))) cy=(f(y_of(*y))) r="2.5" {}
                        }
                        @if series.points.len() > 1 {
                            polyline class=(format!("join s{}", series.style % STYLES))
                                points=(series.points.iter().map(|(x, y, _)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect::<Vec<_>>().join(" ")) {}
                        }
                        @for (x, y, label) in &series.points {
                            g { title { (series.name) ": " (label) } (marker(series.style, x_of(*x), y_of(*y), 5.0)) }
                        }
                    }
                }
            }
        }
    }
}

/// A bar with an interval.
#[derive(Debug)]
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) style: usize,
    pub(super) value: f64,
    pub(super) range: Option<(f64, f64)>,
}

/// Draws bars from zero, the names in front and the values behind.
pub(super) fn bars(id: &str, title: &str, bars: &[Bar<'_>]) -> Markup {
    const ROW: f64 = 27.0;
    const NAMES: f64 = 112.0;
    const VALUES: f64 = 58.0;
    let longest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let most = bars.iter().map(|bar| bar.range.map_or(bar.value, |(_, high)| high.max(bar.value))).fold(0.0, f64::max);
    // An interval far longer than all bars would hide them: it is cut off, without its end.
    let most = most.min(longest * 1.6);
    let scale = (WIDTH - NAMES - VALUES) / most.max(f64::MIN_POSITIVE);
    let height = ROW * bars.len() as f64 + 6.0;
    let title_id = format!("{id}-title");
    html! {
        svg id=(id) role="img" aria-labelledby=(title_id) viewBox=(format!("0 0 {WIDTH} {height}")) {
            title id=(title_id) { (title) }
            @for (n, bar) in bars.iter().enumerate() {
                @let y = ROW * n as f64 + 4.0;
                @let end = NAMES + bar.value * scale;
                g data-series=(bar.name) {
                    text class="name" text-anchor="end" x=(f(NAMES - 7.0)) y=(f(y + 14.0)) { (bar.name) }
                    rect class=(format!("bar s{}", bar.style % STYLES)) x=(f(NAMES)) y=(f(y)) height="19" rx="2" width=(f((end - NAMES).max(1.0))) {}
                    @if let Some((low, high)) = bar.range {
                        @let (low, cut) = (low.min(most), high > most);
                        @let (from, to) = (NAMES + low * scale, NAMES + high.min(most) * scale);
                        @let (middle, top) = (y + 9.5, y + 5.5);
                        path class="whisker" d=(format!("M{from:.1} {middle:.1}H{to:.1}M{from:.1} {top:.1}v8")) {}
                        @if !cut { path class="whisker" d=(format!("M{to:.1} {top:.1}v8")) {} }
                    }
                    @let beside = bar.range.map_or(end, |(_, high)| end.max(NAMES + high.min(most) * scale));
                    text class="value" x=(f(beside + 6.0)) y=(f(y + 14.0)) { (number(bar.value)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn scales_hold_their_values_and_have_ticks(values in prop::collection::vec(1e-6f64..1e12, 1..20)) {
            let scale = Scale::around(values.iter().copied());
            for value in values {
                prop_assert!((0.0..=1.0).contains(&scale.place(value)));
            }
            let ticks = scale.ticks();
            prop_assert!(!ticks.is_empty() && ticks.len() <= 7, "{:?} has {:?}", scale, ticks);
        }
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (6.84, "6.84"),
            (44.56, "44.6"),
            (999.7, "1000"),
            (123_456.0, "123 k"),
            (2e9, "2 G"),
            (0.0123, "0.0123"),
            (5.0, "5"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}

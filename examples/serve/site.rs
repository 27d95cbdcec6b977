//! Options of the served directory.

use millstream::files::{Files, FilesBuilder, cache_by_name};

use super::common;

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files under /f/")]
pub(crate) struct Site {
    /// File that answers for absent pages with status 200, such as index.html.
    #[arg(long, value_name = "NAME")]
    fallback: Option<String>,
    /// Page that is sent with status 404.
    #[arg(long, value_name = "NAME")]
    not_found: Option<String>,
    /// Lists directories without an index.html.
    #[arg(long)]
    listing: bool,
    /// Sends Cache-Control: immutable for names with a hash, no-cache for pages.
    #[arg(long)]
    cache_by_name: bool,
    /// Serves files of which only compressed variants exist.
    #[arg(long)]
    only_compressed: bool,
    /// Content-Type of an extension, such as ts=video/mp2t; may be repeated.
    #[arg(long = "content-type", value_name = "EXTENSION=TYPE", value_parser = pair)]
    content_types: Vec<(String, String)>,
}

impl Site {
    pub(crate) fn open(&self, files: FilesBuilder) -> Result<Files, String> {
        let mut files = files.listing(self.listing).only_compressed(self.only_compressed);
        if let Some(name) = &self.fallback {
            files = files.fallback(name);
        }
        if let Some(name) = &self.not_found {
            files = files.not_found_page(name);
        }
        if self.cache_by_name {
            files = files.cache_control(cache_by_name);
        }
        for (extension, content_type) in &self.content_types {
            files = files.content_type(extension, content_type);
        }
        files.build().map_err(|e| format!("the files under /f/: {}", common::report(&e)))
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (extension, content_type) = text.split_once('=').ok_or("give EXTENSION=TYPE")?;
    Ok((extension.to_owned(), content_type.to_owned()))
}

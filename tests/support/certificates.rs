//! Certificates for one test: an authority, and certificates that it signs, as PEM files in MongoDB's form (key and
//! certificate in one file).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

/// An authority with the certificate file for those who trust it.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
    name: String,
}

impl Authority {
    /// `name` distinguishes its files from those of other authorities in `folder`.
    pub fn new(folder: &Path, name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), issuer.pem()).unwrap();
        Authority { issuer, folder: folder.to_owned(), name: name.to_owned() }
    }

    /// For `tlsCAFile`.
    pub fn file(&self) -> String {
        self.path(&self.name)
    }

    /// A key and its certificate for these host names and addresses, in one file.
    pub fn sign(&self, file: &str, names: &[&str]) -> String {
        self.sign_with(file, names, |_| {})
    }

    /// A certificate that has expired.
    pub fn sign_expired(&self, file: &str, names: &[&str]) -> String {
        self.sign_with(file, names, |parameters| {
            parameters.not_before = date_time_ymd(2001, 1, 1);
            parameters.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    /// A certificate that is not valid yet.
    pub fn sign_early(&self, file: &str, names: &[&str]) -> String {
        self.sign_with(file, names, |parameters| {
            parameters.not_before = date_time_ymd(2201, 1, 1);
            parameters.not_after = date_time_ymd(2202, 1, 1);
        })
    }

    /// A certificate that is valid for this many more days.
    pub fn sign_for_days(&self, file: &str, names: &[&str], days: u64) -> String {
        self.sign_with(file, names, |parameters| {
            parameters.not_after = (SystemTime::now() + Duration::from_secs(days * 24 * 3600)).into();
        })
    }

    /// Like [`Self::sign`], with a key that `openssl pkcs8 -topk8` has encrypted.
    pub fn sign_with_password(&self, file: &str, names: &[&str], password: &str, options: &[&str]) -> String {
        let path = self.sign(file, names);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["pkcs8", "-topk8", "-in", &path, "-passout", "env:PASSWORD"]).args(options);
        let output = openssl.env("PASSWORD", password).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let certificate = &text[text.find("-----BEGIN CERTIFICATE").unwrap()..];
        std::fs::write(&path, [&output.stdout, certificate.as_bytes()].concat()).unwrap();
        path
    }

    fn sign_with(&self, file: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, file);
        parameters.distinguished_name.push(DnType::OrganizationName, "docward tests");
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(file), key.serialize_pem() + &certificate.pem()).unwrap();
        self.path(file)
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(format!("{file}.pem")).display().to_string()
    }
}

//! Tests of tokens, roles and the users of a proxy.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

use super::*;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

/// Writes a file that others cannot read.
fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
}

fn open_roles(options: RoleOptions) -> AccessRoles {
    AccessRoles::new(watch::channel(Arc::new(options)).1)
}

fn token(folder: &Path, name: &str, role: AccessRole, text: &str) -> TokenOptions {
    let file = folder.join(name);
    write_private(&file, text);
    TokenOptions { name: name.to_owned(), role, file }
}

fn bearer(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    headers
}

#[test]
fn token_file_that_everybody_can_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    assert!(matches!(check_token_file(&path), Err(TokenFileError::Read { .. })));
    write_private(&path, "short\n");
    assert!(matches!(check_token_file(&path), Err(TokenFileError::Short(_))));
    write_private(&path, "0123456789abcdef\n");
    assert!(check_token_file(&path).is_ok());
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = check_token_file(&path).unwrap_err().to_string();
    assert!(error.contains("chmod o-r"), "{error}");
}

#[tokio::test]
async fn requests_with_the_right_token_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let admin = token(folder.path(), "admin", AccessRole::Admin, "0123456789abcdef\n");
    let path = admin.file.clone();
    let roles = open_roles(RoleOptions { tokens: vec![admin], ..RoleOptions::default() });
    let check = async |headers: &HeaderMap| {
        roles.check_client(headers, PEER, AccessRole::Acknowledge).await.map(|client| client.role)
    };
    let mut headers = HeaderMap::new();
    let off = open_roles(RoleOptions::default());
    let refused = off.check_client(&headers, PEER, AccessRole::Acknowledge).await;
    assert_eq!(refused, Err(Refusal::WritingOff));
    assert_eq!(check(&headers).await, Err(Refusal::NoToken));
    for (header, expected) in [
        ("Bearer 0123456789abcdef", Ok(AccessRole::Admin)),
        ("bearer  0123456789abcdef ", Ok(AccessRole::Admin)),
        ("Bearer 0123456789abcdeg", Err(Refusal::WrongToken)),
        ("Bearer 0123456789abcde", Err(Refusal::WrongToken)),
        ("Bearer ", Err(Refusal::NoToken)),
        ("Basic 0123456789abcdef", Err(Refusal::NoToken)),
    ] {
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        assert_eq!(check(&headers).await, expected, "{header}");
    }
    write_private(&path, "another-token-now");
    let headers = bearer("another-token-now");
    assert_eq!(check(&headers).await, Ok(AccessRole::Admin), "it is read again");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(check(&headers).await, Err(Refusal::WritingOff));
}

#[tokio::test]
async fn each_token_permits_its_role_alone() {
    use AccessRole::{Acknowledge, Admin, Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let tokens = [Read, Acknowledge, Write, Admin].map(|role| {
        token(folder.path(), role.as_str(), role, &format!("token-of-the-role-{role}"))
    });
    let roles = open_roles(RoleOptions { tokens: tokens.to_vec(), ..RoleOptions::default() });
    for role in [Read, Acknowledge, Write, Admin] {
        for needed in [Read, Acknowledge, Write, Admin] {
            let headers = bearer(&format!("token-of-the-role-{role}"));
            let checked = roles.check_client(&headers, PEER, needed).await;
            match checked {
                Ok(client) => {
                    assert_eq!((client.role, client.name.as_str()), (role, role.as_str()));
                }
                Err(refusal) => assert_eq!(
                    refusal,
                    Refusal::RoleTooLow { name: role.as_str().into(), role, needed }
                ),
            }
        }
    }
    // One file that cannot be read does not refuse the other tokens.
    std::fs::remove_file(folder.path().join("read")).unwrap();
    let headers = bearer("token-of-the-role-admin");
    assert!(roles.check_client(&headers, PEER, Admin).await.is_ok());
}

#[tokio::test]
async fn user_header_counts_from_the_proxy_alone() {
    let proxy = TrustedProxy {
        addresses: vec![PEER],
        user_header: HeaderName::from_static("x-forwarded-user"),
        role: AccessRole::Read,
        users: BTreeMap::from([("alice@example".to_owned(), AccessRole::Acknowledge)]),
    };
    let roles = open_roles(RoleOptions { proxy: Some(proxy), ..RoleOptions::default() });
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-user", "alice@example".parse().unwrap());
    let client = roles.check_client(&headers, PEER, AccessRole::Acknowledge).await.unwrap();
    assert_eq!((client.name.as_str(), client.is_user), ("alice@example", true));
    // The same address, as a socket for both families shows it.
    let mapped: IpAddr = "::ffff:10.0.0.5".parse().unwrap();
    assert!(roles.check_client(&headers, mapped, AccessRole::Read).await.is_ok());
    let elsewhere = [10, 0, 0, 6].into();
    let refused = roles.check_client(&headers, elsewhere, AccessRole::Read).await;
    assert_eq!(refused, Err(Refusal::NoToken), "anybody can send the header");
    headers.append("x-forwarded-user", "bob".parse().unwrap());
    let refused = roles.check_client(&headers, PEER, AccessRole::Read).await;
    assert_eq!(refused, Err(Refusal::NoToken), "the client sent one too");
    headers.insert("x-forwarded-user", "bob".parse().unwrap());
    let refused = roles.check_client(&headers, PEER, AccessRole::Acknowledge).await;
    let (role, needed) = (AccessRole::Read, AccessRole::Acknowledge);
    assert_eq!(refused, Err(Refusal::RoleTooLow { name: "bob".into(), role, needed }));
}
